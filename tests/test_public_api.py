"""What a user imports: every package lists its names, and arrays need JAX alone."""

import ast
import importlib
import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import ssm_jax
from ssm_jax import kernels, layers, recurrences, sharding
from ssm_jax.evaluation import restore

PACKAGES = (
    "kernels",
    "recurrences",
    "sharding",
    "layers",
    "models",
    "training",
    "evaluation",
    "tasks",
    "plots",
    "interop",
    "aot",
)
FLAT = {
    **dict.fromkeys(kernels.__all__, kernels),
    **dict.fromkeys(recurrences.__all__, recurrences),
    **dict.fromkeys(sharding.__all__, sharding),
    **dict.fromkeys(layers.__all__, layers),
}


@pytest.mark.parametrize("name", PACKAGES)
def test_package_lists_all_that_it_imports(name):
    package = importlib.import_module(f"ssm_jax.{name}")
    tree = ast.parse(Path(str(package.__file__)).read_text())
    imported = [
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    assert sorted(package.__all__) == sorted(imported)


def test_flat_names_are_those_of_the_packages():
    here = Path(str(ssm_jax.__file__)).parent
    submodules = set(ssm_jax.__all__) & {path.stem for path in here.iterdir()}
    assert set(ssm_jax.__all__) - submodules == {"__version__", "restore", *FLAT}
    assert all(getattr(ssm_jax, name) is getattr(FLAT[name], name) for name in FLAT)
    assert ssm_jax.restore is restore
    assert set(PACKAGES) <= submodules <= set(dir(ssm_jax))


def test_stub_declares_the_flat_names():
    tree = ast.parse(Path(str(ssm_jax.__file__)).with_suffix(".pyi").read_text())
    declared = {
        alias.asname: ".".join(filter(None, ["ssm_jax", node.module]))
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert set(declared) == set(ssm_jax.__all__) - {"__version__"}
    for name, module in declared.items():
        imported = importlib.import_module(module)
        assert getattr(imported, name) is getattr(ssm_jax, name)


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="ssm_jax attribute unknown"):
        ssm_jax.unknown()


def test_version_is_that_of_the_installed_package():
    assert ssm_jax.__version__ == version("ssm_jax")


def loaded_by(code):
    """The top-level packages that a new process has loaded after ``code``."""
    script = f"import json, sys\n{code}\nprint(json.dumps(sorted(sys.modules)))"
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return {name.split(".")[0] for name in json.loads(run.stdout)}


@pytest.mark.nightly
def test_arrays_need_few_packages():
    allowed = loaded_by(
        "import jax, numpy, scipy.special, scipy.linalg, jaxtyping, annotated_types, "
        "lazy_loader"
    )
    for name in ("ssm_jax", "ssm_jax.kernels", "ssm_jax.recurrences"):
        others = loaded_by(f"import {name}") - allowed - sys.stdlib_module_names
        assert others == {"ssm_jax"}, name


@pytest.mark.full
def test_flat_kernels_and_recurrences_load_no_flax():
    loaded = loaded_by("import ssm_jax; ssm_jax.linear_recurrence, ssm_jax.DLR")
    assert not loaded & {"flax", "optax", "orbax", "ml_collections", "matplotlib"}
    assert not loaded_by("import ssm_jax") & {"jax", "flax"}
