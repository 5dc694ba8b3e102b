"""The structure: imports of `ssm_jax.recurrences`, and the tests of each module."""

import ast
import pathlib
import re

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = "ssm_jax.recurrences"


def modules():
    """The modules of the package by name relative to it, with their files."""
    folder = ROOT / PACKAGE.replace(".", "/")
    files = [path for path in folder.rglob("*.py") if path.name != "__init__.py"]
    return {
        ".".join(path.relative_to(folder).with_suffix("").parts): path for path in files
    }


def imports(path, names):
    """The modules among ``names`` that a file imports, wherever in it."""
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            origin = node.module or ""
            imported |= {origin, *(f"{origin}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
    return {name for name in names if f"{PACKAGE}.{name}" in imported}


def graph():
    """Each module with the modules that it imports; ``__init__`` left out."""
    files = modules()
    return {name: imports(path, files) for name, path in files.items()}


def is_shared(name):
    return name.startswith("families.")


def test_no_module_imports_a_recurrence():
    for name, others in graph().items():
        assert all(map(is_shared, others)), (name, others)


def test_no_circles():
    modules_left = graph()
    while modules_left:
        leaves = {
            name
            for name, others in modules_left.items()
            if not others & set(modules_left)
        }
        assert leaves, sorted(modules_left)
        modules_left = {
            name: others for name, others in modules_left.items() if name not in leaves
        }


def test_tests_are_named_after_a_module_or_a_property():
    """A module of the same path, or a name in the table of CONTRIBUTING.md."""
    rows = re.findall(
        r"^\| `(tests[^`]*)` \| (.*) \|$", (ROOT / "CONTRIBUTING.md").read_text(), re.M
    )
    listed = {
        f"{folder}/test_{name}.py"
        for folder, names in rows
        for name in re.findall(r"`(\w+)`", names)
    }
    unnamed = set()
    for path in ROOT.glob("tests/**/test_*.py"):
        inside = path.relative_to(ROOT / "tests")
        module = inside.with_name(inside.stem.removeprefix("test_"))
        places = [ROOT / "ssm_jax" / module, ROOT / module]
        if not any(
            place.with_suffix(".py").exists() or (place / "__init__.py").exists()
            for place in places
        ):
            unnamed.add(path.relative_to(ROOT).as_posix())
    assert unnamed == listed
