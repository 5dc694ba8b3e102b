"""Values of config fields: whether they have the annotated types."""

import difflib
import types
from collections.abc import Iterable
from typing import Any, Literal, get_args, get_origin

from ml_collections import ConfigDict, FieldReference

from ssm_jax.fields import Misfit, fit

SCALARS = (bool, int, float, str, types.NoneType)


def nearest(word: str, words: Iterable[str]) -> str:
    """Suggests a known name for an error message about an unknown one.

    Returns:
      A question with the most similar name, or a list of the first ten names if none is
      similar.

    Example:
      >>> nearest("d_modle", ["d_model", "d_state"])
      'did you mean `d_model`?'
    """
    words = list(words)
    close = difflib.get_close_matches(word, words, n=1, cutoff=0.5)
    if close:
        return f"did you mean `{close[0]}`?"
    return f"known: {', '.join(words[:10])}{', ...' if words[10:] else '.'}"


def converted(value: Any, annotation: Any, path: str) -> Any:
    """Converts a value to its annotated type, for example an int to a float."""
    items = value if isinstance(value, tuple) else (value,)
    if any(isinstance(item, FieldReference) for item in items):
        return value  # It may follow a field that is set later; `build` checks it.
    try:
        return fit(value, annotation, stand_ins=(ConfigDict,))
    except Misfit as misfit:
        words = _words(annotation)
        is_word = words and isinstance(misfit.value, str)
        hint = f"; {nearest(misfit.value, words)}" if is_word else "."
        raise ValueError(
            f"`{path}{misfit.where}` must be {misfit.rule}, got "
            f"{shown(misfit.value)}{hint}"
        ) from None


def _words(annotation: Any) -> list[str]:
    if get_origin(annotation) is Literal:
        return [word for word in get_args(annotation) if isinstance(word, str)]
    return [word for member in get_args(annotation) for word in _words(member)]


def shown(value: Any) -> str:
    """Formats a value for a message: plain data in full, others by their type."""
    return repr(value) if type(value) in (*SCALARS, tuple) else type(value).__name__
