"""S4D: diagonal state spaces of each channel, in conjugate pairs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from ssm_jax.fields import check_fields
from ssm_jax.kernels.arguments import check_draw
from ssm_jax.kernels.precision import bounded_exp, in_float32
from ssm_jax.recurrences.families.base import ParamGroup, Params
from ssm_jax.recurrences.families.continuous import Continuous
from ssm_jax.recurrences.families.discretization import Discretization, discretize
from ssm_jax.recurrences.families.hippo import legs
from ssm_jax.recurrences.families.initializers import (
    join_complex,
    log_uniform,
    validate_dt_range,
    validate_even_state,
)
from ssm_jax.recurrences.families.modes import SISOModes
from ssm_jax.types import Array, Complex, PRNGKey


@dataclass(frozen=True, kw_only=True)
class S4D(Continuous):
    r"""Diagonal state space with modes of each channel, in conjugate pairs.

    .. math::
      h' = \lambda h + B x, \qquad y = 2 \operatorname{Re}\langle C, h \rangle + D x

    discretized with a step ``Delta`` per channel; the state is stored divided by ``B``
    and its gain.

    Attributes:
      d_state: Number of states per channel, ``N`` in the paper, even; one member of
        each of the ``N / 2`` conjugate pairs is stored.
      eigenvalue_init: Initial ``lam``. ``"lin"``: ``-1/2 + i pi n``. ``"inv"``:
        ``-1/2 + i N / pi (N / (2 n + 1) - 1)``. ``"legs"``: the eigenvalues of the
        normal part of HiPPO-LegS.
      discretization: ``"zoh"`` or ``"bilinear"``; see `discretize`.
      bidirectional: Adds a backward convolution over future steps, with the same
        modes and its own ``C``.
      dt_min: Minimum initial step size.
      dt_max: Maximum initial step size.
      lr_multiplier: Factor on the learning rate of modes, steps and ``B``.

    Parameters, float32, for inputs of width ``d``, ``n = d_state / 2``:
      log_rate: ``(d, n)``, ``Re lam = -exp(log_rate)``.
      frequency: ``(d, n)``, ``Im lam``.
      log_dt: ``(d,)``, the step ``Delta``, log-uniform in ``[dt_min, dt_max]``.
      B_re, B_im: ``(d, n)``, 1.
      C_re, C_im: ``(d, n)``, normal of variance 1/2.
      C_backward_re, C_backward_im: Likewise, only if bidirectional.
      feedthrough: ``(d,)``, ``D``, standard normal.

    Raises:
      ValueError: ``d_state`` is odd or not positive, or ``dt_min`` exceeds ``dt_max``.

    Example:
      >>> s4d = S4D(d_state=8, eigenvalue_init="inv", discretization="bilinear")
      >>> params = s4d.init(jax.random.key(0), d_in=2)
      >>> y, state = jax.jit(s4d.apply)(params, jnp.ones((8, 2)))
      >>> y.shape, state.shape
      ((8, 2), (2, 4))

    Note:
      Rates and step sizes are bounded by ``exp(30)``, so that values and gradients are
      finite.
      As in the authors' code ``B`` is initialized to 1 and learned. Weight decay is
      applied to ``C`` and ``D`` only; the others have their own learning rate (1e-3).

    References:
      Gu, Gupta, Goel and Ré, `On the Parameterization and Initialization of Diagonal
      State Space Models <https://arxiv.org/abs/2206.11893>`_, 2022, sections 3 and 4
    """

    d_state: int = 64
    eigenvalue_init: Literal["lin", "inv", "legs"] = "legs"
    discretization: Discretization = "zoh"
    bidirectional: bool = False
    dt_min: float = 1e-3
    dt_max: float = 1e-1
    lr_multiplier: float = 1.0

    # Re lam < 0 and dt > 0, so that an FFT needs no test of the decays.
    bounded_decay = True

    def __post_init__(self):
        check_fields(self)
        validate_even_state(self.d_state)
        validate_dt_range(self.dt_min, self.dt_max, "all channels one step size")

    def init(self, key: PRNGKey, d_in: int) -> Params:
        """Initializes the parameters; see the class for their shapes."""
        check_draw(key, d_in)
        key_dt, key_c, key_through = jax.random.split(key, 3)
        shape = (d_in, self.d_state // 2)
        names = self._outputs()
        # Variance 1/2 for each part, that is, 1 for C.
        drawn = np.sqrt(0.5) * jax.random.normal(key_c, (len(names), *shape))
        start = {
            # Re lam = -1/2 in all three initializations.
            "log_rate": np.log(0.5),
            "frequency": self._frequency(),
            "B_re": 1.0,
            "B_im": 0.0,
        }
        return {
            "log_dt": log_uniform(key_dt, (d_in,), self.dt_min, self.dt_max),
            "feedthrough": jax.random.normal(key_through, (d_in,)),
            **{
                name: jnp.broadcast_to(jnp.float32(value), shape)
                for name, value in start.items()
            },
            **dict(zip(names, drawn, strict=True)),
        }

    def _frequency(self):
        """Returns the initial ``Im lam`` of one channel."""
        n, pairs = self.d_state, np.arange(self.d_state // 2)
        if self.eigenvalue_init == "legs":
            # S4D-LegS: S4 without its rank-one part.
            return np.imag(legs(n).lam)
        if self.eigenvalue_init == "lin":
            # S4D-Lin: evenly spaced frequencies, as of a Fourier basis.
            return np.pi * pairs
        # S4D-Inv: an inverse law, which approximates the frequencies of LegS.
        return n / np.pi * (n / (2 * pairs + 1) - 1)

    def _outputs(self):
        names = ["C_re", "C_im"]
        if self.bidirectional:
            names += ["C_backward_re", "C_backward_im"]
        return names

    def modes(self, params: Params) -> SISOModes:
        """Returns the modes for the given parameters."""
        params = in_float32(params)
        lam, dt = self._continuous(params)
        log_decay, gain = discretize(self.discretization, lam, dt)
        # 2 Re for the conjugate pairs; B and the gain as weights cost nothing per step.
        input_weight = 2 * gain * join_complex(params, "B")

        def weight(name):
            return join_complex(params, name) * input_weight

        return SISOModes(
            log_decay=log_decay,
            w=weight("C"),
            feedthrough=params["feedthrough"],
            w_backward=weight("C_backward") if self.bidirectional else None,
        )

    def _continuous(self, params):
        """Returns ``lam``, ``(d, n)``, and ``Delta``, ``(d, 1)``."""
        lam = jax.lax.complex(-bounded_exp(params["log_rate"]), params["frequency"])
        return lam, bounded_exp(params["log_dt"])[:, None]

    def scaled_eigenvalues(self, params: Params) -> Complex[Array, "d n"]:
        """Returns ``lam Delta``, ``(d, n)``."""
        lam, dt = self._continuous(in_float32(params))
        return lam * dt.astype(lam.dtype)

    def groups(self) -> Mapping[str, ParamGroup]:
        """Returns optimizer groups for modes, step sizes and ``B``."""
        group = ParamGroup(weight_decay=False, lr_multiplier=self.lr_multiplier)
        return dict.fromkeys(["log_rate", "frequency", "log_dt", "B_re", "B_im"], group)
