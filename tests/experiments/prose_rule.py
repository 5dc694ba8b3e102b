"""The rule by which prose holds a result figure, for `test_prose`.

A result figure is a number written in digits

- with a unit of measurement behind it: ``%``, percent, points, bits, nats, seconds,
  minutes, hours, or ``times`` (as in "4.5 times below"); or
- with a decimal point or an exponent, in a sentence or table that has the name of a
  metric: accuracy, R2, perplexity, MSE, loss, error(s), miss(es).

Prose is Markdown or a docstring, without commands and doctests, without ``literals``
and without references (section 4.1, Python 3.11). Figures may stand between the markers
of `experiments.markers`, and as ``(paper: ...)`` where a paper printed them.
"""

import ast
import re

from experiments import markers

NUMBER = r"\d[\d,]*(?:\.\d+)?(?:e-?\d+)?"
UNITS = r"%|percent|points?\b|bits?\b|nats?\b|s\b|ms\b|seconds?|minutes?|hours?|times\b"
METRICS = r"\b(accurac\w+|r2|r\^2|perplexit\w+|mse|loss\w*|errors?|miss\w*)\b"

WITH_UNIT = re.compile(rf"(?<![\w.]){NUMBER}\s*(?:{UNITS})", re.IGNORECASE)
EXACT = re.compile(r"(?<![\w.,])(?:\d[\d,]*)?\.\d+(?:e-?\d+)?|(?<![\w.])\d+e-?\d+")
PAPER = re.compile(r"\(paper:[^()]*\)")
REFERENCE = re.compile(
    r"\b(section|appendix|figure|table|theorem|lemma|claim|equation|python)s?\s+"
    r"[A-Z]?\.?\d[\d.]*",
    re.IGNORECASE,
)
# A command or a doctest, with the lines that belong to it.
CODE = re.compile(
    r"^[ \t]+(?:(?:python|bash) [^\\\n]*(?:\\\n[^\\\n]*)*|>>> .*\n(?:[ \t]+\S.*\n)*)",
    re.MULTILINE,
)


def docstrings(source: str) -> list[str]:
    """All docstrings of a Python file."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, kinds)]
    return [text for node in nodes if (text := ast.get_docstring(node))]


def unmarked(text: str) -> list[str]:
    """Sentences of prose with a result figure that stands outside of markers."""
    text = markers.BLOCK.sub("", text)
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    text = CODE.sub("", text)
    text = PAPER.sub("", re.sub(r"(`+)[^`]+\1", "", text))
    text = REFERENCE.sub("", text)
    return [each for each in _sentences(text) if _has_figure(each)]


def _sentences(text):
    """Sentences, and tables whole, with one blank between words."""
    for paragraph in re.split(r"\n\s*\n", text):
        is_table = re.search(r"^\s*=+( +=+)+\s*$|^\|[-|]+\|$", paragraph, re.MULTILINE)
        flat = " ".join(paragraph.split())
        yield from [flat] if is_table else re.split(r"(?<=[.:;!?])\s+", flat)


def _has_figure(sentence):
    measured = re.search(METRICS, sentence, re.IGNORECASE)
    return bool(WITH_UNIT.search(sentence) or (measured and EXACT.search(sentence)))
