"""Diagonal linear RNNs (DLR)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from ssm_jax.fields import PositiveInt, check_fields
from ssm_jax.kernels.arguments import check_draw
from ssm_jax.kernels.powers import LogDecay
from ssm_jax.kernels.precision import in_float32
from ssm_jax.recurrences.families.base import ParamGroup, Params
from ssm_jax.recurrences.families.initializers import (
    join_complex,
    log_uniform,
    validate_dt_range,
)
from ssm_jax.recurrences.families.modes import SISOModes, resample
from ssm_jax.recurrences.families.time_invariant import TimeInvariant
from ssm_jax.types import PRNGKey

# Im k = Re(-i k) and Re k + Im k = Re((1 - i) k): real readouts of rotated weights.
_ROTATION = {"imag": -1j, "sum": 1 - 1j}


@dataclass(frozen=True, kw_only=True)
class DLR(TimeInvariant):
    r"""Diagonal linear RNN: all channels share their decays.

    .. math::
      h_t = \lambda h_{t-1} + x_t, \qquad
      y_t = \operatorname{Re}\langle w, h_t \rangle + D x_t, \qquad
      \lambda = \exp(-p^2 + i \theta)

    Attributes:
      d_state: Number of states per channel, ``N`` in the paper.
      readout: The convolution kernel: ``"real"``: ``Re k``; ``"imag"``: ``Im k``;
        ``"sum"``: ``Re k + Im k``; ``"prod"``: ``Re k Im k`` (DLR-prod), better at
        sharp kernels over long ranges.
      eigenvalues: ``"complex"``; ``"unit"`` for complex ones of modulus 1, whose modes
        do not decay; ``"real"`` for decays in (0, 1] and real weights (DLR-R).
      real_weights: Whether weights are real also where eigenvalues are not.
      bidirectional: Adds a backward convolution over future steps, with the same
        decays and its own weights.
      phase_init: Initial phases. ``"even"``: evenly over the circle, so that a kernel
        has the period ``n`` until they have moved. ``"coarse_fine"``: half of them
        evenly over the circle and half within one of its gaps, so that the pairs of a
        product readout have ``n**2 / 4`` evenly spread phases.
      weight_init: Initial weights of the forward and the backward kernel. ``"normal"``,
        or ``"comb"``, for the coarse and fine phases of a product: weights of the
        coarse phases that sum to 1 every ``n // 2`` steps and to 0 elsewhere, and
        weights of 0 of the fine ones. The kernel is 0 at first, and learns taps at
        multiples of ``n // 2`` by the fine weights alone, in which it is then linear.
      max_kernel_length: Number of taps ``K`` after which the kernel of each direction
        is cut, for bidirectional models of long sequences. None: no limit.
      step_scale: Number of steps of the trained sequences that one step replaces, for
        evaluation at a fraction of their sample rate; see `resample`. A kernel is cut
        after ``K`` of the longer steps.
      dt_min: Minimum initial decay rate; a mode decays by ``dt / 2`` nats per step.
      dt_max: Maximum initial decay rate.
      lr_multiplier: Factor on the learning rate of the decays and weights.
      phase_lr_multiplier: Further factor on that of the phases. A step of ``e`` moves
        the phase of a kernel by ``e l`` at lag ``l``; 0 keeps the initial phases.

    Parameters, float32, for inputs of width ``d``:
      sqrt_decay: ``(n,)``, ``p``; its square is the decay rate in nats per step,
        initialized to half of ``dt``, log-uniform in ``[dt_min, dt_max]``. Not if the
        modulus is 1.
      phase: ``(n,)``, ``theta``, radians per step, see ``phase_init``. Only if complex.
      w_re, w_im: ``(d, n)``, normal with standard deviation ``1 / n``, or see
        ``weight_init``; the second only if weights are complex.
      w_backward_re, w_backward_im: Likewise, only if bidirectional.
      feedthrough: ``(d,)``, ``D``, standard normal.

    Raises:
      ValueError: A size is not positive, ``dt_min`` exceeds ``dt_max``, a readout other
        than ``"real"`` is requested for real eigenvalues, or a comb for other phases
        than ``"coarse_fine"`` or another readout than ``"prod"``.

    Example:
      >>> dlr = DLR(d_state=4)
      >>> params = dlr.init(jax.random.key(0), d_in=2)
      >>> y, state = jax.jit(dlr.apply)(params, jnp.ones((8, 2)))
      >>> y.shape, state.shape
      ((8, 2), (2, 4))

    Note:
      The authors' code names ``p`` a logarithm, but it is a square root. Weight decay
      is not applied to decays and weights, as published.

      Real eigenvalues do not represent shifts in floating point: one by ``n - 1``
      steps needs real weights with ``sum |w| >= 2**(2 n - 3)`` (appendix A.4; this
      bound is that of Chebyshev), while ``n`` evenly spread phases need ``sum |w| =
      1``.

      A cut kernel is one function of ``k`` inputs by all methods, ``"sequential"`` and
      ``"fft"``; its state is the last ``K - 1`` inputs, ``(*b, K - 1, d)``, and not the
      ``n`` modes. Sequences of at most ``K`` steps have the outputs of the whole
      kernel.

      DLR-prod step by step: its state is ``(*b, d, n (n + 1) / 2)``, 8.6 GB for one
      sequence of the published size, ``n = 4096`` and ``d = 128``. With the same
      parameters and ``max_kernel_length=K`` it is ``(*b, K - 1, d)``, 2 MB for ``K =
      4096``. The first ``K`` outputs are exact; later ones lack the inputs more than
      ``K - 1`` steps back. A step is ``K`` products per channel, after the taps have
      been formed from the modes, at ``K n`` products per channel.

    References:
      Gupta, Mehta and Berant, `Simplifying and Understanding State Space Models with
      Diagonal Linear RNNs <https://arxiv.org/abs/2212.00768>`_, 2022, section 2
    """

    d_state: int = 1024
    readout: Literal["real", "imag", "sum", "prod"] = "real"
    eigenvalues: Literal["complex", "unit", "real"] = "complex"
    real_weights: bool = False
    bidirectional: bool = False
    phase_init: Literal["even", "coarse_fine"] = "even"
    weight_init: Literal["normal", "comb"] = "normal"
    max_kernel_length: PositiveInt | None = None
    step_scale: PositiveInt = 1
    dt_min: float = 1e-4
    dt_max: float = 1e-1
    lr_multiplier: float = 1.0
    phase_lr_multiplier: float = 1.0

    # |lam| = exp(-p**2) <= 1, so that an FFT needs no test of the decays.
    bounded_decay = True

    def __post_init__(self):
        check_fields(self)
        if self.d_state < 1:
            raise ValueError(
                f"`d_state` must be positive, got {self.d_state}; the published sizes "
                "are 1024 to 4096."
            )
        validate_dt_range(self.dt_min, self.dt_max, "all modes one decay rate")
        if self.readout != "real" and self.eigenvalues == "real":
            raise ValueError(
                "`readout` must be 'real' where the eigenvalues are, got "
                f"{self.readout!r}; the imaginary part of a real kernel is zero."
            )
        if self.phase_init == "coarse_fine" and self.d_state < 2:
            raise ValueError(
                "`d_state` must be at least 2 for coarse and fine phases, got "
                f"{self.d_state}; 'even' allows one."
            )
        phases_of_product = self.phase_init, self.readout
        if self.weight_init == "comb" and phases_of_product != ("coarse_fine", "prod"):
            raise ValueError(
                "`weight_init` must be 'normal' unless `phase_init` is 'coarse_fine' "
                f"and `readout` is 'prod', got 'comb' for {self.phase_init!r} and "
                f"{self.readout!r}; the comb is one factor of a product of kernels."
            )

    @property
    def _complex_weights(self):
        return self.eigenvalues != "real" and not self.real_weights

    def init(self, key: PRNGKey, d_in: int) -> Params:
        """Initializes the parameters; see the class for their shapes."""
        check_draw(key, d_in)
        key_dt, key_w, key_back, key_through = jax.random.split(key, 4)
        params = {"feedthrough": jax.random.normal(key_through, (d_in,))}
        if self.eigenvalues != "unit":
            log_dt = log_uniform(key_dt, (self.d_state,), self.dt_min, self.dt_max)
            # p**2 = dt / 2, as in the authors' code.
            params["sqrt_decay"] = jnp.sqrt(0.5 * jnp.exp(log_dt))
        if self.eigenvalues != "real":
            # In float64, rounded once: powers multiply an error of the phase.
            params["phase"] = jnp.asarray(self._initial_phases(), jnp.float32)
        for name, key in self._weights(key_w, key_back).items():
            # The default scale of the authors' code, 1 / N.
            params[name] = jax.random.normal(key, (d_in, self.d_state)) / self.d_state
            if self.weight_init == "comb":
                params[name] = self._comb(params[name], real=name.endswith("_re"))
        return params

    def _comb(self, w, *, real):
        n = self.d_state // 2
        return jnp.zeros_like(w).at[:, :n].set(1 / n if real else 0)

    def _initial_phases(self):
        if self.phase_init == "even":
            return 2 * np.pi * np.arange(self.d_state) / self.d_state
        n = self.d_state // 2
        coarse = 2 * np.pi * np.arange(n) / n
        # Symmetric, so that equal weights sum to a real kernel, a peak n steps wide.
        n_fine = self.d_state - n
        fine = 2 * np.pi / n * (np.arange(n_fine) - (n_fine - 1) / 2) / n_fine
        return np.concatenate([coarse, fine])

    def _weights(self, key_w, key_back):
        """Returns the PRNG key of each weight by name."""
        names = [("w", key_w)]
        if self.bidirectional:
            names.append(("w_backward", key_back))
        keys = {}
        for name, key in names:
            # Two keys also for real weights, which are the real parts of complex ones.
            re, im = jax.random.split(key)
            keys[f"{name}_re"] = re
            if self._complex_weights:
                keys[f"{name}_im"] = im
        return keys

    def modes(self, params: Params) -> SISOModes:
        """Returns the modes for the given parameters."""
        params = in_float32(params)

        def weight(name):
            if self.eigenvalues == "real":
                return params[f"{name}_re"]
            if self._complex_weights:
                w = join_complex(params, name)
            else:
                w = jax.lax.complex(re := params[f"{name}_re"], jnp.zeros_like(re))
            return w * _ROTATION.get(self.readout, 1)

        if self.eigenvalues == "unit":
            log_abs = jnp.zeros_like(params["phase"])
        else:
            # The square needs no constraint on p.
            log_abs = -jnp.square(params["sqrt_decay"])
        # The directions share their decays, as in the code; the paper calls them
        # independent.
        modes = SISOModes(
            log_decay=LogDecay(log_abs, params.get("phase")),
            w=weight("w"),
            feedthrough=params["feedthrough"],
            w_backward=weight("w_backward") if self.bidirectional else None,
            readout="prod" if self.readout == "prod" else "real",
        )
        return resample(modes, self.step_scale)

    def groups(self) -> Mapping[str, ParamGroup]:
        """Returns optimizer groups for decays and weights."""
        group = ParamGroup(weight_decay=False, lr_multiplier=self.lr_multiplier)
        # As published; `feedthrough` has the default settings of the optimizer.
        names = ["w_re"] + ["w_im"] * self._complex_weights
        names += ["sqrt_decay"] * (self.eigenvalues != "unit")
        names += ["phase"] * (self.eigenvalues != "real")
        if self.bidirectional:
            names += [n.replace("w_", "w_backward_") for n in names if "w_" in n]
        groups = dict.fromkeys(names, group)
        if "phase" in groups:
            rate = self.lr_multiplier * self.phase_lr_multiplier
            groups["phase"] = ParamGroup(weight_decay=False, lr_multiplier=rate)
        return groups
