"""The README: its tree, its commands and its example of restoring a run."""

import re
from pathlib import Path

import pytest

from ssm_jax.training import train
from tests.training import tiny

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def shown_tree():
    """Paths of the README's tree, from the root."""
    block = README.split("## The tree")[1].split("```")[1]
    folder, paths = "", []
    for line in block.strip().splitlines():
        name = line.split()[0]
        if not line.startswith(" "):
            folder = name
            paths.append(name)
        else:
            paths.append(folder + name)
    return paths


def test_the_tree_shown_is_the_tree():
    tree = shown_tree()
    package = {
        f"ssm_jax/{path.name}" + ("/" if path.is_dir() else "")
        for path in (ROOT / "ssm_jax").iterdir()
        if path.suffix != ".pyi"
        and path.name not in ("__init__.py", "__pycache__", "py.typed")
    }
    assert {path for path in tree if path.startswith("ssm_jax/")} - {
        "ssm_jax/"
    } == package
    for path in tree:
        assert (ROOT / path).exists(), path


def test_every_command_and_file_named_exists():
    names = re.findall(r"(?:experiments|launch|tests)/[a-z_/]+\.(?:py|sh)", README)
    modules = re.findall(r"python -m ([\w.]+)", README)
    assert names and modules
    for name in names:
        assert (ROOT / name).is_file(), name
    for module in modules:
        path = ROOT / module.replace(".", "/")
        program = path / "__main__.py" if path.is_dir() else path.with_suffix(".py")
        assert program.is_file(), module


@pytest.mark.full
def test_restored_run_predicts_as_the_readme_shows(tmp_path, monkeypatch):
    train(tiny.digits(), str(tmp_path / "runs/digits"))
    monkeypatch.chdir(tmp_path)
    example = README.split("```python\nimport ssm_jax\n")[1].split("```")[0]
    names = {}
    exec("import ssm_jax\n" + example, names)
    assert names["logits"].shape == (64, 10)
