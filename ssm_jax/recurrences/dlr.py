"""Diagonal linear RNNs (DLR) and the identities between their kernels."""

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from ssm_jax.fields import check_fields
from ssm_jax.kernels.arguments import check_draw
from ssm_jax.kernels.powers import LogDecay, multiply_decays
from ssm_jax.kernels.precision import in_float32
from ssm_jax.recurrences.families.initializers import (
    join_complex,
    log_uniform,
    validate_dt_range,
)
from ssm_jax.recurrences.families.time_invariant import (
    ParamGroup,
    Params,
    SISOModes,
    TimeInvariant,
)
from ssm_jax.types import Array, Complex, Eigenvalues, Float, PRNGKey, Readout


@dataclass(frozen=True, kw_only=True)
class DLR(TimeInvariant):
    r"""Diagonal linear RNN: all channels share their decays.

    .. math::
      h_t = \lambda h_{t-1} + x_t, \qquad
      y_t = \operatorname{Re}\langle w, h_t \rangle + D x_t, \qquad
      \lambda = \exp(-p^2 + i \theta)

    Attributes:
      d_state: Number of states per channel, ``N`` in the paper.
      readout: ``"real"``: the convolution kernel is ``Re k``; ``"prod"``: ``Re k Im k``
        (DLR-prod), better at sharp kernels over long ranges.
      eigenvalues: ``"complex"``, or ``"real"`` for decays in (0, 1] and real weights
        (DLR-R).
      bidirectional: Adds a backward convolution over future steps, with the same
        decays and its own weights.
      dt_min: Minimum initial decay rate; a mode decays by ``dt / 2`` nats per step.
      dt_max: Maximum initial decay rate.
      lr_multiplier: Factor on the learning rate of the decays and weights.

    Parameters, float32, for inputs of width ``d``:
      sqrt_decay: ``(n,)``, ``p``; its square is the decay rate in nats per step,
        initialized to half of ``dt``, log-uniform in ``[dt_min, dt_max]``.
      phase: ``(n,)``, ``theta``, radians per step, initialized evenly over the
        circle. Only if complex.
      w_re, w_im: ``(d, n)``, normal with standard deviation ``1 / n``; the second only
        if complex.
      w_backward_re, w_backward_im: Likewise, only if bidirectional.
      feedthrough: ``(d,)``, ``D``, standard normal.

    Raises:
      ValueError: A size is not positive, ``dt_min`` exceeds ``dt_max``, or the product
        readout is requested for real eigenvalues.

    Example:
      >>> dlr = DLR(d_state=4)
      >>> params = dlr.init(jax.random.key(0), d_in=2)
      >>> y, state = jax.jit(dlr.apply)(params, jnp.ones((8, 2)))
      >>> y.shape, state.shape
      ((8, 2), (2, 4))

    Note:
      The authors' code names ``p`` a logarithm, but it is a square root. Weight decay
      is not applied to decays and weights, as published.

    References:
      Gupta, Mehta and Berant, `Simplifying and Understanding State Space Models with
      Diagonal Linear RNNs <https://arxiv.org/abs/2212.00768>`_, 2022, section 2
    """

    d_state: int = 1024
    readout: Readout = "real"
    eigenvalues: Eigenvalues = "complex"
    bidirectional: bool = False
    dt_min: float = 1e-4
    dt_max: float = 1e-1
    lr_multiplier: float = 1.0

    # |lam| = exp(-p**2) <= 1, so that an FFT needs no test of the decays.
    bounded_decay = True

    def __post_init__(self):
        """Validates the fields."""
        check_fields(self)
        if self.d_state < 1:
            raise ValueError(
                f"`d_state` must be positive, got {self.d_state}; the published sizes "
                "are 1024 to 4096."
            )
        validate_dt_range(self.dt_min, self.dt_max, "all modes one decay rate")
        if self.readout == "prod" and self.eigenvalues == "real":
            raise ValueError(
                "`readout` must be 'real' where the eigenvalues are, got 'prod'; the "
                "imaginary part of a real kernel is zero."
            )

    def init(self, key: PRNGKey, d_in: int) -> Params:
        """Initializes the parameters; see the class for their shapes."""
        check_draw(key, d_in)
        key_dt, key_w, key_back, key_through = jax.random.split(key, 4)
        log_dt = log_uniform(key_dt, (self.d_state,), self.dt_min, self.dt_max)
        params = {
            # p**2 = dt / 2, as in the authors' code.
            "sqrt_decay": jnp.sqrt(0.5 * jnp.exp(log_dt)),
            "feedthrough": jax.random.normal(key_through, (d_in,)),
        }
        if self.eigenvalues == "complex":
            # In float64, rounded once: powers multiply an error of the phase.
            circle = 2 * np.pi * np.arange(self.d_state) / self.d_state
            params["phase"] = jnp.asarray(circle, jnp.float32)
        for name, key in self._weights(key_w, key_back).items():
            # The default scale of the authors' code, 1 / N.
            params[name] = jax.random.normal(key, (d_in, self.d_state)) / self.d_state
        return params

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
            if self.eigenvalues == "complex":
                keys[f"{name}_im"] = im
        return keys

    def modes(self, params: Params) -> SISOModes:
        """Returns the modes for the given parameters."""
        params = in_float32(params)

        def weight(name):
            if self.eigenvalues == "real":
                return params[f"{name}_re"]
            return join_complex(params, name)

        # The square needs no constraint on p. The directions share their decays, as in
        # the code; the paper calls them independent.
        return SISOModes(
            log_decay=LogDecay(-jnp.square(params["sqrt_decay"]), params.get("phase")),
            w=weight("w"),
            feedthrough=params["feedthrough"],
            w_backward=weight("w_backward") if self.bidirectional else None,
            readout=self.readout,
        )

    def groups(self) -> Mapping[str, ParamGroup]:
        """Returns optimizer groups for decays and weights."""
        group = ParamGroup(weight_decay=False, lr_multiplier=self.lr_multiplier)
        # As published; `feedthrough` has the default settings of the optimizer.
        names = ["sqrt_decay", "w_re"]
        if self.eigenvalues == "complex":
            names += ["phase", "w_im"]
        if self.bidirectional:
            names += [n.replace("w_", "w_backward_") for n in names if "w_" in n]
        return dict.fromkeys(names, group)


def kronecker(
    log_1: LogDecay,
    w_1: Complex[Array, "d m"],
    log_2: LogDecay,
    w_2: Complex[Array, "d n"],
) -> tuple[LogDecay, Complex[Array, "d mn"]]:
    """Returns the DLR whose complex kernel is the product of those of two DLRs.

    Args:
      log_1: Logarithm of the first decays, leaves ``(m,)``.
      w_1: Weights of the first, ``(d, m)``.
      log_2: Logarithm of the second decays, leaves ``(n,)``.
      w_2: Weights of the second, ``(d, n)``.

    Returns:
      ``(log_decay, w)`` of the ``m n`` products of modes, leaves ``(m n,)`` and
      ``(d, m n)``.

    References:
      Gupta et al., 2022, appendix A.2
    """
    # In log space with two-float phases: the products are as accurate as their factors.
    outer = multiply_decays(
        jax.tree.map(lambda v: v[:, None], log_1),
        jax.tree.map(lambda v: v[None, :], log_2),
    )
    w = w_1[:, :, None] * w_2[:, None, :]
    return jax.tree.map(jnp.ravel, outer), w.reshape(w.shape[0], -1)


def diagonalized(
    A: Float[np.ndarray, "n n"],
    B: Float[np.ndarray, "n 1"],
    C: Float[np.ndarray, "d n"],
) -> tuple[LogDecay, Complex[Array, "d n"]]:
    """Returns the DLR that is equivalent to a linear RNN with a diagonalizable matrix.

    ``h_t = A h_{t-1} + B x_t, y_t = C h_t`` has the kernel ``C A**l B``.

    Args:
      A: Transition matrix, ``(n, n)``.
      B: Input projection, ``(n, 1)``.
      C: Readout, ``(d, n)``.

    Returns:
      ``(log_decay, w)``: leaves ``(n,)`` and ``(d, n)``, with the kernel
      ``Re sum_n w_n lam_n**l``.

    Raises:
      ValueError: The eigenvectors of ``A`` are linearly dependent in float64.

    References:
      Gupta et al., 2022, section 2.2 and appendix A.3
    """
    # numpy in float64: the condition number multiplies rounding errors.
    lam, vectors = np.linalg.eig(np.asarray(A, np.float64))
    condition = np.linalg.cond(vectors)
    # `not <` also holds for NaN.
    if not condition < 1e10:
        raise ValueError(
            "`A` must be diagonalizable, got eigenvectors of condition number "
            f"{condition:.1e}; add a small random matrix to `A`."
        )
    # C A**l B = sum_n (C V)_n (V**-1 B)_n lam_n**l, with a solve for the inverse.
    w = (C @ vectors) * np.linalg.solve(vectors, np.asarray(B, np.complex128))[:, 0]
    phase = np.angle(lam)
    # Two floats: powers multiply the rounding error of one, 1e-7 radians, by the lag.
    high = phase.astype(np.float32)
    # A decay of 0 has no logarithm; exp(-200) is 0 in float32.
    log_abs = np.log(np.maximum(np.abs(lam), np.exp(-200.0))).astype(np.float32)
    low = (phase - high).astype(np.float32)
    log_decay = LogDecay(jnp.asarray(log_abs), jnp.asarray(high), jnp.asarray(low))
    return log_decay, jnp.asarray(w, jnp.complex64)
