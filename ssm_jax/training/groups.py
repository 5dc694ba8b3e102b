"""Groups of parameters: their weight decay and factors on the learning rate."""

import dataclasses
import re
from collections.abc import Iterable
from typing import Any

import jax

from ssm_jax.fields import NonNegativeFloat
from ssm_jax.layers.recurrent import LabelledParam
from ssm_jax.recurrences.families.base import ParamGroup, ParamKind
from ssm_jax.types import PyTree

Rates = tuple[tuple[str, NonNegativeFloat], ...]
"""Pairs of a regular expression on paths of parameters and a factor."""


def groups_of(boxed: PyTree) -> PyTree:
    """Returns the group of each parameter of a model.

    The kind of a parameter is that of its group or, if that is None, by its path in the
    model and its shape:

    - a parameter labelled by a box: ``"recurrence"``;
    - a ``bias`` or a ``scale``, and what has fewer than two axes: ``"vector"``;
    - one of a recurrence: ``"matrix"`` if its name ends in ``_kernel``, else
      ``"recurrence"``;
    - one of ``encoder`` or ``positions``, or called ``embedding``, as that of
      `flax.linen.Embed` is: ``"embedding"``; one of ``head``: ``"head"``;
    - of the others, one of more than two axes is a ``"convolution"``, as that of
      `flax.linen.Conv`, unless it is the kernel of a `Linear` (of each of several
      experts): it is a ``"matrix"``, as those of two axes are.

    Args:
      boxed: Parameters as returned by ``model.init``, some boxed as `LabelledParam`.

    Returns:
      A tree with a `ParamGroup` in place of each parameter: that of its box, or the
      default group, each with its kind.

    Example:
      >>> shape = jax.ShapeDtypeStruct((8, 8), "float32")
      >>> groups_of({"block_0": {"layer": {"out": {"kernel": shape}}}})
      {'block_0': {'layer': {'out': {'kernel': ParamGroup(weight_decay=True,
      lr_multiplier=1.0, kind='matrix')}}}}
    """

    def group(path, leaf):
        labelled = isinstance(leaf, LabelledParam)
        group = leaf.group if labelled else ParamGroup()
        if group.kind is not None:
            return group
        kind = "recurrence" if labelled else _kind(_name(path), leaf.ndim)
        return dataclasses.replace(group, kind=kind)

    # A box is itself a pytree node, whose group `jax.tree.map` would not see.
    return jax.tree.map_with_path(
        group, boxed, is_leaf=lambda leaf: isinstance(leaf, LabelledParam)
    )


def _kind(path: str, ndim: int) -> ParamKind:
    """The kind of a parameter without a label; see `groups_of`."""
    *modules, name = path.split("/")
    if name in ("bias", "scale") or ndim < 2:
        return "vector"
    if "recurrence" in modules:
        return "matrix" if name.endswith("_kernel") else "recurrence"
    if modules[:1] == ["head"]:
        return "head"
    if modules[:1] in (["encoder"], ["positions"]) or name == "embedding":
        return "embedding"
    # `Linear` calls its map so; `flax.linen.vmap` adds axes in front.
    is_linear = modules[-1:] == ["dense"]
    return "matrix" if ndim == 2 or is_linear else "convolution"


def with_rates(groups: PyTree, rates: Rates) -> PyTree:
    """Multiplies the learning rates of the parameters whose paths match.

    Args:
      groups: A `ParamGroup` for each parameter, as returned by `groups_of`.
      rates: Regular expressions and factors. The first expression that matches a part
        of a path such as ``block_0/layer/mixing/out/dense/kernel`` counts.

    Returns:
      The groups, with other multipliers.

    Raises:
      ValueError: An expression counts for no parameter.

    Example:
      >>> groups = {"encoder": ParamGroup(), "head": ParamGroup()}
      >>> with_rates(groups, (("^enc", 0.1),))["encoder"].lr_multiplier
      0.1
    """
    used = set()

    def multiply(path, group):
        for pattern, factor in rates:
            if re.search(pattern, _name(path)):
                used.add(pattern)
                multiplier = group.lr_multiplier * factor
                return dataclasses.replace(group, lr_multiplier=multiplier)
        return group

    multiplied = jax.tree.map_with_path(multiply, groups, is_leaf=is_group)
    for pattern, _ in rates:
        if pattern not in used:
            leaves = jax.tree.leaves_with_path(groups, is_leaf=is_group)
            raise ValueError(
                "`rates` must hold patterns that match the path of a parameter and "
                f"follow no other that does, got {pattern!r}; {_name(leaves[0][0])} is "
                "such a path."
            )
    return multiplied


def without_vector_decay(groups: PyTree) -> PyTree:
    """Returns the groups, in which vectors have no weight decay.

    Args:
      groups: A `ParamGroup` for each parameter, with its kind.
    """

    def changed(group):
        decays = group.weight_decay and group.kind != "vector"
        return dataclasses.replace(group, weight_decay=decays)

    return jax.tree.map(changed, groups, is_leaf=is_group)


def check_patterns(rates: Rates) -> None:
    """Checks that the patterns are regular expressions.

    Raises:
      ValueError: One is not.
    """
    for pattern, _ in rates:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(
                f"`rates` must hold regular expressions, got {pattern!r}: {error}; "
                "escape its special characters."
            ) from error


def describe(groups: PyTree, params: PyTree) -> Iterable[str]:
    """Describes the groups of a model and their numbers of parameters.

    Args:
      groups: Groups as returned by `groups_of`.
      params: The parameters, or their shapes.

    Yields:
      One line per group.

    Raises:
      ValueError: The trees of groups and parameters differ.
    """
    group_leaves, where = jax.tree.flatten(groups, is_leaf=is_group)
    if jax.tree.structure(params) != where:
        raise ValueError(
            "`groups` must have one group for each parameter, got another tree; "
            "`groups_of` makes it from what `model.init` returns."
        )
    sizes: dict[ParamGroup, int] = {}
    for group, leaf in zip(group_leaves, jax.tree.leaves(params), strict=True):
        sizes[group] = sizes.get(group, 0) + leaf.size
    for group, size in sizes.items():
        decay = "with" if group.weight_decay else "without"
        yield f"{size:,} parameters {decay} weight decay, rate x{group.lr_multiplier:g}"


def is_group(leaf: Any) -> bool:
    """Whether a node of a tree of groups is one; a dataclass is a leaf only if told."""
    return isinstance(leaf, ParamGroup)


def _name(path):
    return jax.tree_util.keystr(path, simple=True, separator="/")
