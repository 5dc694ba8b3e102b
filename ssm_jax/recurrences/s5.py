"""S5: one state space shared by all channels."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from ssm_jax.fields import check_fields, check_size
from ssm_jax.kernels.arguments import check_draw
from ssm_jax.kernels.precision import bounded_exp, in_float32
from ssm_jax.kernels.promotion import common_dtype
from ssm_jax.recurrences.families.base import ParamGroup, Params
from ssm_jax.recurrences.families.continuous import Continuous
from ssm_jax.recurrences.families.discretization import Discretization, discretize
from ssm_jax.recurrences.families.hippo import legs
from ssm_jax.recurrences.families.initializers import (
    join_complex,
    log_uniform,
    split_complex,
    validate_dt_range,
)
from ssm_jax.recurrences.families.modes import MIMOModes
from ssm_jax.types import Array, Complex, PRNGKey

# Maximum real part of an eigenvalue, as the authors' code clips it.
_REAL_PART_MAX = -1e-4


@dataclass(frozen=True, kw_only=True)
class S5(Continuous):
    r"""Diagonal state space of many inputs and many outputs.

    .. math::
      h' = \lambda h + B x, \qquad y = 2 \operatorname{Re}(C h) + D x

    discretized with a step ``Delta`` per state. The state is ``(*b, n)``. All channels
    share the states: ``n`` recurrences are evaluated, not ``d n``, by
    `linear_recurrence` with ``method``.

    Attributes:
      d_state: Number of states, ``P`` in the paper, a multiple of ``2 blocks``.
      blocks: Number of copies of HiPPO-LegS in the initialization, ``J`` in the paper.
      conjugate_pairs: Whether states are in conjugate pairs, of which one member is
        stored; else all are stored and ``y = Re(C h) + D x``.
      real_part: ``"clip"``: ``Re lam = min(lam_re, -1e-4)``. ``"exp"``: ``Re lam =
        -exp(log_rate)``.
      discretization: ``"zoh"`` or ``"bilinear"``; see `discretize`.
      C_init: Initialization of ``C`` before its rotation into the eigenbasis. Real and
        imaginary part are normal with standard deviation ``1 / sqrt(d_state)`` for
        ``"trunc_standard_normal"`` and ``1 / sqrt(d d_state)`` for ``"lecun_normal"``;
        for ``"complex_normal"`` it is ``1 / sqrt(2)``, without a rotation.
      bidirectional: Adds a backward direction, with the same states and its own ``C``.
        Both directions include the present step.
      dt_min: Minimum initial step size.
      dt_max: Maximum initial step size.
      lr_multiplier: Factor on the learning rate of modes, steps and ``B``.

    Parameters, float32, for inputs of width ``d``, ``n`` states stored:
      lam_re: ``(n,)``, or with ``"exp"`` log_rate, initialized to -1/2.
      frequency: ``(n,)``, ``Im lam``, of the normal part of HiPPO-LegS.
      log_dt: ``(n,)``, the step ``Delta``, log-uniform in ``[dt_min, dt_max]``.
      B_re, B_im: ``(n, d)``, normal with standard deviation ``1 / sqrt(d_state)``,
        rotated.
      C_re, C_im: ``(d, n)``.
      C_backward_re, C_backward_im: Likewise, only if bidirectional.
      feedthrough: ``(d,)``, ``D``, standard normal.

    Raises:
      ValueError: ``d_state`` is not a multiple of ``2 blocks``, or ``dt_min`` exceeds
        ``dt_max``.

    Example:
      >>> s5 = S5(d_state=8, blocks=2)
      >>> params = s5.init(jax.random.key(0), d_in=3)
      >>> y, state = jax.jit(s5.apply)(params, jnp.ones((6, 3)))
      >>> y.shape, state.shape
      ((6, 3), (4,))

    Note:
      Rates and step sizes are bounded by ``exp(30)``, so that values and gradients are
      finite.
      The initializations of ``C`` have the authors' names, although
      ``trunc_standard_normal`` is not a standard normal. Their code clips only if
      requested. Weight decay is applied to ``C`` and ``D`` only; the others have their
      own learning rate.

    References:
      Smith, Warrington and Linderman, `Simplified State Space Layers for Sequence
      Modeling <https://arxiv.org/abs/2208.04933>`_, 2022, section 3 and appendix B.1
    """

    d_state: int = 256
    blocks: int = 8
    conjugate_pairs: bool = True
    real_part: Literal["clip", "exp"] = "clip"
    discretization: Discretization = "zoh"
    C_init: Literal["trunc_standard_normal", "lecun_normal", "complex_normal"] = (
        "trunc_standard_normal"
    )
    bidirectional: bool = False
    dt_min: float = 1e-3
    dt_max: float = 1e-1
    lr_multiplier: float = 1.0

    # Re lam < 0 and dt > 0, so that an FFT needs no test of the decays.
    bounded_decay = True

    def __post_init__(self):
        check_fields(self)
        check_size("blocks", self.blocks)
        if self.d_state < 1 or self.d_state % (2 * self.blocks):
            raise ValueError(
                f"`d_state` must be a multiple of 2 blocks, got {self.d_state} with "
                f"{self.blocks} blocks; a block is made of conjugate pairs."
            )
        validate_dt_range(self.dt_min, self.dt_max, "all states one step size")

    def init(self, key: PRNGKey, d_in: int) -> Params:
        """Initializes the parameters; see the class for their shapes."""
        check_draw(key, d_in)
        # Two keys for C in any case: `bidirectional` does not change other parameters.
        key_dt, key_b, key_through, *keys_c = jax.random.split(key, 5)
        frequency, V = self._start()
        # The fan-in is the first axis, d_state, as in the authors' code.
        drawn = jax.nn.initializers.lecun_normal()(key_b, (self.d_state, d_in))
        drawn = drawn.reshape(self.blocks, -1, d_in)
        # V^* B of each block. As B is real, one row of each conjugate pair suffices.
        drawn = drawn.astype(common_dtype(drawn, V))
        V_conj = np.conj(V).astype(drawn.dtype)
        B = jnp.einsum("mk,bmd->bkd", V_conj, drawn, precision="highest")
        params = {
            "frequency": jnp.asarray(frequency, jnp.float32),
            "log_dt": log_uniform(key_dt, frequency.shape, self.dt_min, self.dt_max),
            "feedthrough": jax.random.normal(key_through, (d_in,)),
            **split_complex("B", B.reshape(-1, d_in)),
        }
        if self.real_part == "exp":
            params["log_rate"] = jnp.full(frequency.shape, np.log(0.5), jnp.float32)
        else:
            params["lam_re"] = jnp.full(frequency.shape, -0.5, jnp.float32)
        for name, key_c in zip(self._outputs(), keys_c, strict=False):
            params |= split_complex(name, self._C(key_c, d_in, V))
        return params

    def _start(self):
        """``Im lam`` of all states, and the eigenvectors of one block."""
        hippo = legs(self.d_state // self.blocks)
        frequency, V = np.imag(hippo.lam), np.complex64(hippo.V)
        if not self.conjugate_pairs:
            # The other members of the pairs, with conjugate eigenvectors.
            frequency = np.concatenate([frequency, -frequency])
            V = np.concatenate([V, np.conj(V)], -1)
        # A block-diagonal initial matrix: every block has the same spectrum.
        return np.tile(frequency, self.blocks), V

    def _C(self, key, d, V):
        if self.C_init == "complex_normal":
            parts = jax.random.normal(key, (2, d, self.blocks * V.shape[-1]))
            return np.sqrt(0.5) * jax.lax.complex(*parts)
        draw = jax.nn.initializers.lecun_normal(in_axis=-1, out_axis=-2, batch_axis=0)
        # The fan-in is d_state; both parts are drawn before the rotation C V.
        parts = draw(key, (2, d, self.d_state)).reshape(2, d, self.blocks, -1)
        if self.C_init == "lecun_normal":
            parts /= np.sqrt(d)
        C = jax.lax.complex(*parts)
        C = jnp.einsum("dbm,mk->dbk", C, V.astype(C.dtype), precision="highest")
        return C.reshape(d, -1)

    def _outputs(self):
        return ["C", "C_backward"] if self.bidirectional else ["C"]

    def modes(self, params: Params) -> MIMOModes:
        """Returns the modes for the given parameters."""
        params = in_float32(params)
        lam, dt = self._continuous(params)
        log_decay, gain = discretize(self.discretization, lam, dt)
        # 2 Re(C h) restores the conjugate member of each pair.
        both = 2 if self.conjugate_pairs else 1
        behind = (
            both * join_complex(params, "C_backward") if self.bidirectional else None
        )
        return MIMOModes(
            log_decay=log_decay,
            B=gain[:, None] * join_complex(params, "B"),
            C=both * join_complex(params, "C"),
            feedthrough=params["feedthrough"],
            C_backward=behind,
        )

    def _continuous(self, params):
        """Returns ``lam`` and ``Delta``."""
        if self.real_part == "exp":
            lam_re = -bounded_exp(params["log_rate"])
        else:
            # As in the authors' code: beyond the bound the gradient is 0.
            lam_re = jnp.minimum(params["lam_re"], _REAL_PART_MAX)
        lam = jax.lax.complex(lam_re, params["frequency"])
        return lam, bounded_exp(params["log_dt"])

    def scaled_eigenvalues(self, params: Params) -> Complex[Array, " n"]:
        """Returns ``lam Delta``, ``(n,)``."""
        lam, dt = self._continuous(in_float32(params))
        return lam * dt.astype(lam.dtype)

    def groups(self) -> Mapping[str, ParamGroup]:
        """Returns optimizer groups for modes, step sizes and ``B``."""
        group = ParamGroup(weight_decay=False, lr_multiplier=self.lr_multiplier)
        real_part = "log_rate" if self.real_part == "exp" else "lam_re"
        names = [real_part, "frequency", "log_dt", "B_re", "B_im"]
        return dict.fromkeys(names, group)
