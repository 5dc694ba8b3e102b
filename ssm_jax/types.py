"""Type aliases for arrays and arguments, and the axis names used in annotations.

Each letter denotes the same axis throughout the package:

===  ============================================================
b    batch; ``*b`` is any number of batch axes, including none
l    length of a sequence, in steps
d    width of a layer, in channels
n    state size of one channel (the modes of a recurrence)
c    length of a chunk, in steps
===  ============================================================

Sequences have shape ``(*b, l, d)``. The kernels operate on states and use
``(*b, l, n)``. The annotations are checked under pytest only, so they add no run-time
cost.
"""

from typing import Any, Literal

import jax
import numpy as np
from jaxtyping import Bool, Complex, Float, Inexact, Int, Integer, Key, Shaped

Array = jax.Array | np.ndarray
"""Type of array arguments. Functions return `jax.Array`."""

Method = Literal["auto", "sequential", "associative", "chunked", "fft", "pallas"]
"""Evaluation method of a recurrence. It affects cost and rounding, not the result."""

Readout = Literal["real", "prod"]
"""Map from a complex kernel ``k`` to a real one: ``Re k`` or ``Re k * Im k``."""

Eigenvalues = Literal["complex", "real"]
"""Field of the eigenvalues of a recurrence."""

Activations = Float[Array, "*b l d"]
Outputs = Float[Array, "*b l o"]
States = Inexact[Array, "*b l n"]
State = Inexact[Array, "*b n"]
Decays = Inexact[Array, " n"]
Steps = Bool[Array, "*b l"]
StepSizes = Float[Array, "*#b l"]
PRNGKey = Key[jax.Array, ""]
PyTree = Any
# An integer, or a dimension of `jax.export.symbolic_shape`, which acts as one.
Dimension = Any

__all__ = [
    "Activations",
    "Array",
    "Bool",
    "Complex",
    "Decays",
    "Dimension",
    "Eigenvalues",
    "Float",
    "Inexact",
    "Int",
    "Integer",
    "Method",
    "Outputs",
    "PRNGKey",
    "PyTree",
    "Readout",
    "Shaped",
    "State",
    "States",
    "StepSizes",
    "Steps",
]
