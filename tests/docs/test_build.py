"""The pages as they are built: all code runs, all links and names lead somewhere."""

import html
import importlib
import os
import re
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest

from ssm_jax.cli.main import PROGRAMS
from tests.test_public_api import PACKAGES

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.nightly  # Minutes: Sphinx reads all modules.


def build(out: Path, *options: str) -> Path:
    """Builds the pages; a warning is an error."""
    program = [sys.executable, "-m", "sphinx", "--builder", "html", "--fail-on-warning"]
    folders = ["--doctree-dir", str(out / "doctrees"), "docs", str(out / "html")]
    process = subprocess.run(
        [*program, "--keep-going", *options, *folders],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr[-5000:]
    return out / "html"


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> Path:
    """The pages; their cells are not executed."""
    out = tmp_path_factory.mktemp("docs")
    return build(out, "--define", "nb_execution_mode=off")


def test_every_public_name_is_documented(pages):
    from sphinx.util.inventory import InventoryFile

    data = (pages / "objects.inv").read_bytes()
    kinds = InventoryFile.loads(data, uri="").data
    documented = {
        name for kind, names in kinds.items() if kind[:3] == "py:" for name in names
    }
    for package in [*PACKAGES, "config", "testing"]:
        names = importlib.import_module(f"ssm_jax.{package}").__all__
        assert {f"ssm_jax.{package}.{name}" for name in names} <= documented


def test_sources_of_public_names_are_linked(pages):
    page = (pages / "api" / "kernels.html").read_text()
    assert (
        'href="../_modules/ssm_jax/kernels/recurrence.html#linear_recurrence"' in page
    )


@cache
def anchors(page: Path) -> set[str]:
    return set(re.findall(r'\b(?:id|name)="([^"]+)"', page.read_text()))


def test_signatures_and_results_are_those_of_the_docstrings(pages):
    layers = re.sub(r"<[^>]*>", "", (pages / "api" / "layers.html").read_text())
    assert "ssm_jax.layers.MLP(d_hidden" in layers and "_Sentinel" not in layers
    plots = re.sub(r"<[^>]*>", "", (pages / "api" / "plots.html").read_text())
    assert "Bottom: the number of steps" in plots


def test_flags_of_every_program_are_listed(pages):
    # A space, since a flag and its description are elements without one between them.
    page = re.sub(r"<[^>]*>", " ", (pages / "api" / "programs.html").read_text())
    for program in PROGRAMS:
        module = importlib.import_module(f"ssm_jax.cli.{program}")
        source = Path(str(module.__file__)).read_text()
        for flag in re.findall(r"DEFINE_\w+\(\s*\"(\w+)\"", source):
            assert re.search(rf"--(\[no\])?{flag}\b", page), (program, flag)


def test_internal_links_lead_to_a_page_and_an_anchor(pages):
    broken = []
    for page in pages.rglob("*.html"):
        for link in re.findall(r'\b(?:href|src)="([^"]+)"', page.read_text()):
            link = unquote(html.unescape(link))
            if re.match(r"[a-z]+:|//|data:", link):
                continue
            path, _, anchor = link.partition("#")
            target = page.parent / path.partition("?")[0] if path else page
            if target.is_dir():
                target = target / "index.html"
            if not target.is_file():
                broken.append((page.name, link))
            elif anchor and target.suffix == ".html" and anchor not in anchors(target):
                broken.append((page.name, link))
    assert broken == []


def test_cells_run_and_draw_and_tutorials_take_three_minutes_each(tmp_path):
    before = time.perf_counter()
    out = build(tmp_path)
    tutorials = [f"tutorials/{name}" for name in ("dlr", "forecast", "text")]
    for name in ("recurrence", "numerics", *tutorials):
        page = (out / f"{name}.html").read_text()
        assert re.search(r'<img [^>]*src="[^"]*_images/', page), name
    assert time.perf_counter() - before < len(tutorials) * 180 + 120
