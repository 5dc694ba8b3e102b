"""The configuration of Sphinx; `launch/docs.sh` builds the pages."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
# The pages are built from this checkout, whether it is installed or not.
sys.path[:0] = [str(HERE.parent), str(HERE / "extensions")]
# The kernels that run the cells find the experiments, and `ssm-jax`.
os.environ["PYTHONPATH"] = str(HERE.parent)
os.environ["PATH"] = os.pathsep.join(
    [str(Path(sys.executable).parent), os.environ["PATH"]]
)
# Several pages, and several builds, run the same programs: they are compiled once.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(HERE / "_build" / "compiled"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")

import ssm_jax  # noqa: E402

project = "ssm_jax"
version = release = ssm_jax.__version__
html_title = f"ssm_jax {version}"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",  # MathJax from this machine, not from a network.
    "docstrings",
    "doctests",
    "programs",
]
exclude_patterns = ["_build", "extensions", "snippets", "**.ipynb_checkpoints"]

html_theme = "furo"
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["tables.css"]
# A plain index of the pages, at the root of the site.
html_extra_path = ["llms.txt"]
html_theme_options = {
    "light_css_variables": {"font-stack--monospace": "DejaVu Sans Mono, monospace"}
}

# Docstrings: shapes are in the text, and the annotations would hide the arguments.
default_role = "py:obj"
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "special-members": "__call__"}
napoleon_use_ivar = True
napoleon_use_rtype = False
napoleon_attr_annotations = False
napoleon_preprocess_types = False

# Pages: cells run in one kernel for each page, and an error ends the build.
myst_enable_extensions = ["dollarmath", "deflist", "colon_fence"]
myst_heading_anchors = 3
# Results in Markdown are as the pages are, with tables.
nb_render_markdown_format = "myst"
nb_execution_mode = "force"
nb_execution_timeout = 300
# Sphinx defines `tags`: `--tag quick`.
if "quick" in tags:  # noqa: F821 # pyright: ignore[reportUndefinedVariable]
    nb_execution_excludepatterns = ["tutorials/*"]
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True
nb_output_stderr = "show"
