"""Runs the examples of a page, ``>>> ...``, when the page is read.

They run in the process of the build, page by page, and take no kernel of their own. An
output that differs is a warning, and so an error of the build. Examples with the flag
`SLOW` run only in builds that run the cells.
"""

import contextlib
import doctest
import io
import re

from sphinx.util import logging

FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
SLOW = doctest.register_optionflag("SLOW")
"""Of an example that runs only in builds that run the cells."""

logger = logging.getLogger(__name__)


def setup(app):
    """Connects the function below."""
    app.connect("source-read", run_examples)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def run_examples(app, docname, source):
    """Runs the examples of a page as one session."""
    # A fence would be read as the last line of an output.
    text = re.sub(r"^```.*$", "", source[0], flags=re.MULTILINE)
    test = doctest.DocTestParser().get_doctest(text, {}, docname, docname, 0)
    if app.config.nb_execution_mode == "off":
        test.examples = [
            example for example in test.examples if not example.options.get(SLOW)
        ]
    if not test.examples:
        return
    report = io.StringIO()
    runner = doctest.DocTestRunner(verbose=False, optionflags=FLAGS)
    with contextlib.redirect_stdout(io.StringIO()):
        results = runner.run(test, out=report.write)
    if results.failed:
        logger.warning("%s", report.getvalue(), location=docname)
