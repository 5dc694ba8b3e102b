"""Counts the programs that are compiled in a block."""

import collections
import contextlib
import logging
import re
from collections.abc import Iterator

import jax

_LINE = re.compile(r"Compiling (\S+) with global shapes and types (.*)\. Argument")


@contextlib.contextmanager
def compilations() -> Iterator[collections.Counter[str]]:
    """Counts compilations by the name of the program and the shapes of its arguments.

    Weak types and shardings are left out: a program that is compiled again for other
    ones counts twice. Programs without arguments are not counted.
    """
    counts: collections.Counter[str] = collections.Counter()
    logger = logging.getLogger("jax._src.interpreters.pxla")

    def count(record):
        match = _LINE.match(record.getMessage())
        if match and "Array" in match[2]:
            counts[f"{match[1]} {match[2].replace(', weak_type=True', '')}"] += 1
        return False

    logger.addFilter(count)
    try:
        with jax.log_compiles():
            yield counts
    finally:
        logger.removeFilter(count)
