"""The import structure of `ssm_jax.recurrences`."""

import ast
import pathlib

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
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            origin = node.module or ""
            found |= {origin, *(f"{origin}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for name in names if f"{PACKAGE}.{name}" in found}


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
    left = graph()
    while left:
        leaves = {name for name, others in left.items() if not others & set(left)}
        assert leaves, sorted(left)
        left = {name: others for name, others in left.items() if name not in leaves}
