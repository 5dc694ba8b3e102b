"""The sources of the pages: what they name exists, and each package has a page."""

import importlib
import json
import re
import shlex
from pathlib import Path

import pytest

from experiments.records import BENCHMARKS
from ssm_jax.cli import main, prepare
from tests.test_public_api import PACKAGES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if "_build" not in page.parts]
each_page = pytest.mark.parametrize(
    "page", PAGES, ids=[str(page.relative_to(DOCS)) for page in PAGES]
)
# The flags of the programs of ssm_jax.
FLAGS = {
    name
    for file in (ROOT / "ssm_jax" / "cli").glob("*.py")
    for name in re.findall(r"DEFINE_\w+\(\s*\"(\w+)\"", file.read_text())
} | {"config"}


@pytest.mark.parametrize("package", [*PACKAGES, "config", "testing"])
def test_package_has_a_page_of_its_docstrings(package):
    text = (DOCS / "api" / f"{package}.md").read_text()
    assert f".. automodule:: ssm_jax.{package}\n" in text


def commands(page):
    """The commands that a page shows or runs, each as its words."""
    text = page.read_text()
    blocks = re.findall(r"^```bash\n(.*?)^```", text, re.M | re.S)
    for block in blocks + re.findall(r"^run\(\"(.*)\"\)$", text, re.M):
        for line in block.replace("\\\n", " ").splitlines():
            if words := shlex.split(line, comments=True):
                yield words


@each_page
def test_files_and_modules_of_commands_exist(page):
    for words in commands(page):
        for path in re.findall(
            r"\b(?:experiments|launch|examples)/[\w/.]+", str(words)
        ):
            assert (ROOT / path).exists(), words
        if words[:2] == ["python", "-m"] and words[2] not in ("venv", "pytest"):
            place = ROOT / words[2].replace(".", "/")
            assert place.with_suffix(".py").is_file() or place.is_dir(), words


@each_page
def test_programs_and_flags_of_commands_exist(page):
    for words in commands(page):
        if words[0] == "ssm-jax":
            assert words[1] in main.PROGRAMS, words
            named = {re.split(r"[=.]", w[2:])[0] for w in words if w.startswith("--")}
            assert named <= FLAGS, words


@each_page
def test_variants_of_commands_exist(page):
    for words in commands(page):
        for word in words:
            match = re.fullmatch(r"--config=(experiments/[\w/]+)\.py(?::(.*))?", word)
            if match:
                module = importlib.import_module(match[1].replace("/", "."))
                config = module.get_config(*filter(None, [match[2]]))
                assert config.training.steps > 0


def test_every_page_is_in_the_plain_index_with_a_line():
    text = (DOCS / "llms.txt").read_text()
    lines = re.findall(r"^- \[.+\]\((\S+)\): \S.*$", text, re.M)
    assert len(lines) == text.count("\n- ")
    sources = [page.relative_to(DOCS) for page in PAGES]
    pages = [path for path in sources if path.parts[0] != "snippets"]
    assert sorted(lines) == sorted(str(path.with_suffix(".html")) for path in pages)


def test_error_of_the_first_page_is_that_of_the_record():
    readme = (ROOT / "README.md").read_text()
    record = json.loads((BENCHMARKS / "powers.json").read_text())
    errors = {
        row["what"]: f"{row['error']:.1e}".replace("e-0", "e-")
        for row in record["rows"]
        if row["length"] == 2**20
    }
    (ours,) = re.findall(r"^\| \*\*ssm_jax\*\* .* (\S+e-\d+) \|", readme, re.M)
    assert ours == errors["exact"]
    text = " ".join(readme.split())
    assert f"exponentials in float32 give {errors['exponentials']} there" in text
    assert f"products, as in a scan, {errors['products']}." in text


def test_every_set_of_prepare_is_listed_with_its_experiments():
    rows = re.findall(
        r"^\| (`.*?) \| (.*?) \|", (DOCS / "papers" / "data.md").read_text(), re.M
    )
    listed = [name for names, _ in rows for name in re.findall(r"`([\w/]+)`", names)]
    # A number is the size of another set of the same kind; `pathx` is pathfinder128.
    sets = [f"pathfinder_segmentation{n}" if n.isdigit() else n for n in listed]
    assert sorted(sets) == sorted({*prepare.PUBLISHED, *prepare.DRAWN} - {"pathx"})
    for _, experiments in rows:
        for name in re.findall(r"`([\w/]+)", experiments):
            assert (ROOT / "experiments" / f"{name}.py").is_file(), name
