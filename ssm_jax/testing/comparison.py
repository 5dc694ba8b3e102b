"""Comparisons whose errors name a property and what usually fixes it."""

from typing import NoReturn

import chex
import jax
import numpy as np

from ssm_jax.types import PyTree


def fail(rule: str, remedy: str) -> NoReturn:
    """Raises an error of a property."""
    raise AssertionError(f"{rule}; {remedy}.")


def check(condition: object, rule: str, remedy: str) -> None:
    """Checks a condition."""
    if not condition:
        fail(rule, remedy)


def check_close(
    result: PyTree, expected: PyTree, tolerance: float, rule: str, remedy: str
) -> None:
    """Checks that two trees are equal up to the tolerance.

    Args:
      result: What is checked.
      expected: What it must be.
      tolerance: Largest difference, relative to the largest absolute value of the leaf,
        or to a hundredth of the largest of all, since a leaf may cancel to zero.
      rule: The property, as the message begins.
      remedy: What usually fixes it.

    Raises:
      AssertionError: The trees differ.
    """
    try:
        chex.assert_trees_all_equal_shapes_and_dtypes(result, expected)
    except AssertionError as error:
        fail(
            f"{rule}, got other shapes or dtypes: {' '.join(str(error).split())}",
            remedy,
        )
    leaves = jax.tree.leaves_with_path(result)
    largest = max(map(_largest, jax.tree.leaves(expected)), default=0.0)
    for (path, leaf), like in zip(leaves, jax.tree.leaves(expected), strict=True):
        leaf, like = np.asarray(leaf), np.asarray(like)
        scale = max(_largest(like), 1e-2 * largest) or 1.0
        if leaf.dtype == jax.dtypes.float0:
            continue
        error = _largest(leaf - like) / scale
        # `not <=`: a NaN differs from everything.
        if not error <= tolerance:
            where = jax.tree_util.keystr(path) or "the values"
            fail(
                f"{rule}, got a difference of {error:.1e} of the largest value in "
                f"{where}, where {tolerance:g} is allowed",
                remedy,
            )


def _largest(values):
    values = np.asarray(values)
    # The gradient of integers has no values.
    if values.dtype == jax.dtypes.float0:
        return 0.0
    return float(np.max(np.abs(values), initial=0))
