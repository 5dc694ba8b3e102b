"""Programs: how many are compiled in a block, and what they are traced under."""

import collections
import contextlib
import logging
import re
from collections.abc import Callable, Iterator

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


@contextlib.contextmanager
def strict_promotion() -> Iterator[None]:
    """Sets ``jax_numpy_dtype_promotion="strict"`` and ``jax_numpy_rank_promotion``."""
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        yield


def assert_allowed_by_strict_promotion(function: Callable, *args: object) -> None:
    """Checks that a program promotes explicitly, so that settings do not change it.

    It is traced with and without `strict_promotion`, and must be the same.
    """

    def program():
        # A new function, as one that was traced is not traced again.
        text = str(jax.make_jaxpr(lambda *args: function(*args))(*args))
        return re.sub(r"0x[0-9a-f]+", "", text)

    with strict_promotion():
        strict = program()
    assert strict == program()
