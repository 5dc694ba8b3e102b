"""Structured global convolution (SGConv), a long kernel of few parameters."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import jax
import jax.numpy as jnp

from ssm_jax.fields import Interval, PositiveInt, check_fields
from ssm_jax.kernels.arguments import check_draw
from ssm_jax.recurrences.families.base import ParamGroup, Params
from ssm_jax.recurrences.families.finite_kernel import FiniteKernel, Kernels
from ssm_jax.types import PRNGKey


@dataclass(frozen=True, kw_only=True)
class SGConv(FiniteKernel):
    r"""Convolution with a kernel in scales, each wider and smaller than the one before.

    .. math::
      k = \frac{1}{Z} [\, \alpha^0 w_0, \ \alpha^1 w_1, \ \alpha^2 U_2 w_2, \ \dots,
      \ \alpha^{S - 1} U_{2^{S - 2}} w_{S - 1} ]_{0 \dots L - 1}, \qquad
      y_t = \sum_{l < L} k_l x_{t - l} + D x_t

    ``U_f`` interpolates linearly to ``f`` times as many taps, and ``Z`` is the norm of
    the initial kernel of a channel.

    Attributes:
      d_state: Number of parameters ``N`` of a scale.
      length: Number of taps ``L``, for example the length of a training sequence. The
        kernel is zero after them. The number of scales is the smallest for which they
        have as many: ``N, N, 2 N, 4 N, ...`` taps.
      decay: ``alpha``, the factor from each scale to the next; 1 for no decay.
      bidirectional: Adds a kernel over future steps.
      lr_multiplier: Factor on the learning rate of the kernels.

    Parameters, float32, for inputs of width ``d`` and ``s`` scales:
      kernel: ``(s, d, n)``, ``w``, normal with standard deviation ``1 / n``.
      initial_norm: ``(d,)``, ``Z``, computed at initialization. It is a parameter so
        that checkpoints have it; its learning rate is 0 and it has no weight decay.
      kernel_backward, initial_norm_backward: Likewise, only if bidirectional.
      feedthrough: ``(d,)``, ``D``, standard normal.

    Raises:
      ValueError: A size is not positive, or ``decay`` is not in (0, 1].

    Example:
      >>> sgconv = SGConv(d_state=4, length=16)
      >>> params = sgconv.init(jax.random.key(0), d_in=2)
      >>> y, state = jax.jit(sgconv.apply)(params, jnp.ones((8, 2)))
      >>> y.shape, state.shape
      ((8, 2), (15, 2))

    Note:
      The authors' code records ``Z`` in the first call. Here the kernel is cut to ``L``
      taps before its norm is taken. Weight decay is not applied to kernels.

    References:
      Li, Cai, Zhang, Chen and Dey, `What Makes Convolutional Models Great on Long
      Sequence Modeling? <https://arxiv.org/abs/2210.09298>`_, 2022, section 3; the
      initialization of Gupta, Mehta and Berant, 2022, appendix A.6
    """

    length: PositiveInt
    d_state: PositiveInt = 4096
    decay: Annotated[float, Interval(ge=1e-6, le=1)] = 0.5
    bidirectional: bool = False
    lr_multiplier: float = 1.0

    def __post_init__(self):
        check_fields(self)

    @property
    def kernel_length(self) -> int:
        """``length``."""
        return self.length

    @property
    def n_scales(self) -> int:
        """Number of scales, whose taps are at least ``length``."""
        # s scales have N 2**(s - 1) taps.
        return 1 + math.ceil(math.log2(max(1, self.length / self.d_state)))

    def init(self, key: PRNGKey, d_in: int) -> Params:
        """Initializes the parameters; see the class for their shapes."""
        check_draw(key, d_in)
        key_through, *keys = jax.random.split(key, 3)
        params = {"feedthrough": jax.random.normal(key_through, (d_in,))}
        shape = (self.n_scales, d_in, self.d_state)
        for suffix, key in zip(self._directions(), keys, strict=False):
            w = jax.random.normal(key, shape) / self.d_state
            params[f"kernel{suffix}"] = w
            norm = jnp.linalg.norm(self._kernel(w, self.length), axis=-1)
            params[f"initial_norm{suffix}"] = norm
        return params

    def _directions(self):
        return ["", "_backward"] if self.bidirectional else [""]

    def _kernel(self, w, length):
        """Returns the first taps before normalization, ``(d, length)``."""
        scales = []
        for i, scale in enumerate(w):
            taps = _upsampled(scale, 2 ** max(0, i - 1))
            scales.append(self.decay**i * taps)
            if sum(part.shape[-1] for part in scales) >= length:
                break
        return jnp.concatenate(scales, -1)[:, :length]

    def kernels(self, params: Params, length: int) -> Kernels:
        """Returns the first taps of each direction."""
        length = min(length, self.length)
        forward, *backward = (
            self._kernel(params[f"kernel{suffix}"], length)
            / params[f"initial_norm{suffix}"][:, None]
            for suffix in self._directions()
        )
        return Kernels(forward, params["feedthrough"], *backward)

    def groups(self) -> Mapping[str, ParamGroup]:
        """Returns optimizer groups for kernels and their norms."""
        of_kernel = ParamGroup(weight_decay=False, lr_multiplier=self.lr_multiplier)
        of_norm = ParamGroup(weight_decay=False, lr_multiplier=0.0)
        return {
            f"{name}{suffix}": group
            for suffix in self._directions()
            for name, group in (("kernel", of_kernel), ("initial_norm", of_norm))
        }


def _upsampled(w, factor):
    """Interpolates ``(d, n)`` linearly to ``(d, factor n)``, constant at both ends."""
    # Not by `jax.image.resize`, whose matrix of weights is (n, factor n).
    around = jnp.pad(w, [(0, 0), (1, 1)], mode="edge")[..., None]
    # Half-pixel centers: `factor` taps around each parameter, less than 1/2 from it.
    place = (jnp.arange(factor, dtype=w.dtype) + 0.5) / factor - 0.5
    place = place[None, None]
    before, after = jnp.maximum(-place, 0), jnp.maximum(place, 0)
    taps = before * around[:, :-2] + after * around[:, 2:]
    taps += (1 - before - after) * around[:, 1:-1]
    return taps.reshape(len(w), -1)
