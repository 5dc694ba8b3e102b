"""The shape alphabet of the package, its array types and its choices.

One letter stands for one axis everywhere:

===  ============================================================
b    batch; ``*b`` is any number of batch axes, none included
l    length: steps of a sequence
d    width: channels of a layer
n    states of one channel (the modes of a recurrence)
c    steps of a chunk
===  ============================================================

Sequences are ``(*b, l, d)``; inside the kernels, where only states live,
``(*b, l, n)``. Annotations are checked by pytest and cost nothing at run time.
"""

from typing import Any, Literal

import jax
import numpy as np
from jaxtyping import Bool, Complex, Float, Inexact, Int, Integer, Key, Shaped

Array = jax.Array | np.ndarray
"""What functions take; what they return are `jax.Array`s."""

Method = Literal["auto", "sequential", "associative", "chunked", "fft"]
"""How a recurrence is evaluated; changes cost and rounding, never the meaning."""

Readout = Literal["real", "prod"]
"""How complex modes make a real convolution kernel: ``Re k``, or ``Re k Im k``."""

Eigenvalues = Literal["complex", "real"]
"""Where the decays of a recurrence live."""

Activations = Float[Array, "*b l d"]
Outputs = Float[Array, "*b l o"]
States = Inexact[Array, "*b l n"]
State = Inexact[Array, "*b n"]
Decays = Inexact[Array, " n"]
Steps = Bool[Array, "*b l"]
PRNGKey = Key[jax.Array, ""]
PyTree = Any

__all__ = [
    "Activations",
    "Array",
    "Bool",
    "Complex",
    "Decays",
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
    "Steps",
]
