"""The import structure of `ssm_jax.recurrences`."""

import ast
import pathlib

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = "ssm_jax.recurrences"
MOST_IMPORTS = 2.8  # per recurrence, those of shared modules included
MOST_FAMILIES = 3


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


def test_few_imports():
    imported = graph()
    n_recurrences = sum(not is_shared(name) for name in imported)
    n_imports = sum(map(len, imported.values()))
    assert n_imports <= MOST_IMPORTS * n_recurrences, imported


def test_a_recurrence_imports_few_shared_modules_and_no_other_recurrence():
    for name, others in graph().items():
        if not is_shared(name):
            assert len(others) <= MOST_FAMILIES, (name, others)
            assert all(map(is_shared, others)), (name, others)


def test_shared_modules_import_no_recurrence():
    for name, others in graph().items():
        if is_shared(name):
            assert all(map(is_shared, others)), (name, others)


def test_no_circles():
    left = graph()
    while left:
        leaves = {name for name, others in left.items() if not others & set(left)}
        assert leaves, sorted(left)
        left = {name: others for name, others in left.items() if name not in leaves}
