"""LinOSS: forced harmonic oscillators, whose states are positions and velocities."""

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from ssm_jax.fields import PositiveInt, check_fields
from ssm_jax.kernels import plan
from ssm_jax.kernels.arguments import check_draw
from ssm_jax.kernels.axes import append_axes, match_varying_axes
from ssm_jax.kernels.precision import in_float32, matmul_f32, sigmoid
from ssm_jax.kernels.promotion import promoted_like
from ssm_jax.kernels.rematerialization import map_blocks
from ssm_jax.kernels.sharding import reshard, state_of_rows
from ssm_jax.recurrences.families.base import ParamGroup, Params, Recurrence, check
from ssm_jax.recurrences.families.padding import apply_to_valid_steps, state_after
from ssm_jax.types import Activations, Array, Float, Method, Outputs, PRNGKey, Steps

OscillatorDiscretization = Literal["im", "imex"]


@dataclass(frozen=True, kw_only=True)
class LinOSS(Recurrence):
    r"""Linear oscillatory state space: ``n`` oscillators shared by all channels.

    .. math::
      y'' = -A y + B x, \qquad o = \operatorname{Re}(C y) + D x

    with the position ``y`` and the velocity ``z`` of each oscillator, discretized with
    a step ``Delta`` of its own,

    .. math::
      z_t = s (z_{t-1} + \Delta (B x_t - A y_{t-1})), \qquad
      y_t = y_{t-1} + \Delta z_t

    with ``s = 1 / (1 + Delta**2 A)`` for ``"im"``, in which the force is that of
    ``y_t``, and ``s = 1`` for ``"imex"``. ``B`` and ``C`` are complex and the step is
    real, so that the real and the imaginary part of a state are oscillators of their
    own. The state is real, ``(*b, 2, 2 n)``: ``z`` and ``y``, of each the real parts
    and then the imaginary ones.

    Attributes:
      d_state: Number of complex oscillators, ``n``.
      discretization: ``"im"``, implicit: oscillations are damped, by ``sqrt(s)`` in a
        step. ``"imex"``, implicit for ``y`` and explicit for ``z``: they are not.

    Parameters, float32, for inputs of width ``d``:
      squared_frequency: ``(n,)``, ``A = max(0, squared_frequency)``, uniform in [0, 1].
      logit_dt: ``(n,)``, ``Delta = sigmoid(logit_dt)``, uniform in [0, 1].
      B_re, B_im: ``(n, d)``, uniform in ``+-1 / sqrt(d)``.
      C_re, C_im: ``(d, n)``, uniform in ``+-1 / sqrt(n)``.
      feedthrough: ``(d,)``, ``D``, standard normal.

    Raises:
      ValueError: ``d_state`` is not positive, or ``discretization`` is unknown.

    Example:
      >>> linoss = LinOSS(d_state=4)
      >>> params = linoss.init(jax.random.key(0), d_in=3)
      >>> y, state = jax.jit(linoss.apply)(params, jnp.ones((6, 3)))
      >>> y.shape, state.shape
      ((6, 3), (2, 8))

    Note:
      A step multiplies ``(z, y)`` by a matrix ``M`` of determinant ``s`` and trace ``2
      sqrt(s) cos(theta)``, with ``cos(theta) = sqrt(s)`` for ``"im"`` and ``1 -
      Delta**2 A / 2`` for ``"imex"``. The response of ``y`` to an input is ``Delta**2
      s**(1 + k / 2) sin((k + 1) theta) / sin(theta)`` after ``k`` steps: that of two
      diagonal modes, ``sqrt(s) exp(+-i theta)``, whose weights are infinite where ``M``
      has no basis of eigenvectors, at ``A = 0`` and, for ``"imex"``, at ``Delta**2 A =
      4``, and which cancel near it. Hence the pairs of states are evaluated as they
      are, by powers of ``M`` that are polynomials in ``cos(theta)``: values and
      gradients are finite at both. Beyond 4 ``"imex"`` grows exponentially; as in the
      authors' code, nothing excludes it.

    References:
      Rusch and Rus, `Oscillatory State-Space Models
      <https://arxiv.org/abs/2410.03943>`_, 2024, section 2
    """

    d_state: PositiveInt = 64
    discretization: OscillatorDiscretization = "im"

    def __post_init__(self):
        check_fields(self)

    def init(self, key: PRNGKey, d_in: int) -> Params:
        """Initializes the parameters; see the class for their shapes."""
        check_draw(key, d_in)
        key_a, key_dt, key_b, key_c, key_through = jax.random.split(key, 5)
        n = self.d_state

        def uniform(key, *shape):
            """Real and imaginary parts."""
            bound = 1 / math.sqrt(shape[-1])
            return jax.random.uniform(key, (2, *shape), minval=-bound, maxval=bound)

        B, C = uniform(key_b, n, d_in), uniform(key_c, d_in, n)
        return {
            "squared_frequency": jax.random.uniform(key_a, (n,)),
            "logit_dt": jax.random.uniform(key_dt, (n,)),
            "B_re": B[0],
            "B_im": B[1],
            "C_re": C[0],
            "C_im": C[1],
            "feedthrough": jax.random.normal(key_through, (d_in,)),
        }

    def initial_state(
        self, batch_shape: tuple[int, ...], d_in: int
    ) -> Float[jax.Array, "*b 2 m"]:
        """Returns zeros, batch axes first."""
        del d_in
        return jnp.zeros((*batch_shape, 2, 2 * self.d_state))

    def groups(self) -> Mapping[str, ParamGroup]:
        """Returns a group without weight decay for frequencies and steps."""
        names = ("squared_frequency", "logit_dt")
        return dict.fromkeys(names, ParamGroup(weight_decay=False))

    def apply(
        self,
        params: Params,
        x: Activations,
        state: Float[Array, "*b 2 m"] | None = None,
        *,
        reset: Steps | None = None,
        mask: Steps | None = None,
        method: Method = "auto",
    ) -> tuple[Outputs, Float[jax.Array, "*b 2 m"]]:
        """Maps a sequence to a sequence; see `Recurrence.apply` for the arguments.

        ``"sequential"`` takes one step after another, on CPUs in blocks of long
        sequences. ``"associative"`` combines pairs of steps, pairs of pairs and so on,
        of depth ``log l``. ``"auto"`` is the first on CPUs and for a single step, else
        the second. There is no ``"fft"``: the response to an input grows with the
        number of steps at ``A = 0``, and an FFT rounds all outputs to the largest one.
        """
        params = in_float32(params)
        check(
            x,
            state,
            reset,
            mask,
            d=len(params["feedthrough"]),
            state_shape=(2, 2 * self.d_state),
            method=method,
        )
        if method not in ("auto", "sequential", "associative"):
            raise ValueError(
                "`method` must be 'sequential' or 'associative' for LinOSS, got "
                f"{method!r}; 'auto' chooses one of them."
            )
        x = jnp.asarray(x)
        # All channels drive each oscillator, so that each device needs them.
        x = reshard(x, x, [*range(x.ndim - 1), None])
        run = functools.partial(_evaluate, self.discretization, method, params)
        return apply_to_valid_steps(run, x, state, reset, mask)


class _Oscillators(NamedTuple):
    """Real oscillators ``z' = z + s dt (u - A (y + lag z))``, ``y' = y + dt z'``.

    Attributes:
      A: Squared frequencies, ``(m,)``.
      dt: Steps, ``(m,)``.
      lag: ``dt`` for ``"im"``, whose force is that of the next position; else 0.
    """

    A: Array
    dt: Array
    lag: Array

    @property
    def damping(self):
        """``1 / s - 1``, ``(m,)``."""
        return self.dt * self.lag * self.A

    def step(self, z, y, u):
        """Returns velocities and positions after a step with the force ``u``."""
        # Changes are added, not multiplied by M: its rounding would damp or excite slow
        # oscillators, whose M is almost the identity, at every step.
        A, dt, lag, damping = (promoted_like(v, u) for v in (*self, self.damping))
        z = z + dt / (1 + damping) * (u - A * (y + lag * z))
        return z, y + dt * z


class _Power(NamedTuple):
    """``M**k = r ((1 - versine) I + sines N)``, ``N = M / sqrt(s) - cos(theta) I``.

    Attributes:
      log_r: Logarithm of ``r = s**(k / 2)``, ``(m,)``.
      versine: ``1 - cos(k theta)``, of small values with all digits, ``(m,)``.
      sines: ``sin(k theta) / sin(theta)``, a polynomial in ``cos(theta)``, ``(m,)``.
      N: Its entries 11, which is minus 22, 12 and 21, ``(m,)``.
    """

    log_r: Array
    versine: Array
    sines: Array
    N: tuple[Array, Array, Array]

    def squared(self):
        """Returns ``M**(2 k)``, by the formulas of the double angle."""
        versine, sines = self.versine, self.sines
        return self._replace(
            log_r=2 * self.log_r,
            versine=2 * versine * (2 - versine),
            sines=2 * (1 - versine) * sines,
        )

    def __call__(self, z, y):
        """Returns the velocities and positions that ``M**k`` maps others to."""
        cosine, (n_11, n_12, n_21) = 1 - self.versine, self.N
        entries = (
            cosine + self.sines * n_11,
            self.sines * n_12,
            self.sines * n_21,
            cosine - self.sines * n_11,
        )
        r = jnp.exp(self.log_r)
        zz, zy, yz, yy = (promoted_like(r * entry, z) for entry in entries)
        return zz * z + zy * y, yz * z + yy * y


def _first_power(discretization, oscillators):
    """Returns ``M``."""
    A, dt, _ = oscillators
    log_r = -jnp.log1p(oscillators.damping) / 2
    r = jnp.exp(log_r)
    if discretization == "im":
        # 1 - sqrt(s), without a difference.
        versine = oscillators.damping * r**2 / (1 + r)
        n_11 = jnp.zeros_like(r)
    else:
        versine = n_11 = dt**2 * A / 2
    N = n_11, -r * dt * A, r * dt
    return _Power(log_r, versine, jnp.ones_like(r), N)


def _evaluate(discretization, method, params, x, state, reset, lengths):
    """Evaluates left-aligned rows with ``lengths`` valid steps; None means all."""
    dtype = params["feedthrough"].dtype
    x = x.astype(dtype)
    shape = (*x.shape[:-2], 2, 2 * len(params["logit_dt"]))
    state = jnp.zeros(shape, dtype) if state is None else state.astype(dtype)
    state = state_of_rows(state, x)
    # In shard_map all operands of a scan must vary over the same axes.
    params, x, state, reset, lengths = match_varying_axes(
        params, x, state, reset, lengths
    )
    A = jax.nn.relu(params["squared_frequency"])
    dt = sigmoid(params["logit_dt"])
    lag = dt if discretization == "im" else jnp.zeros_like(dt)
    # Real and imaginary parts are oscillators with the same constants.
    oscillators = _Oscillators(*(jnp.concatenate([v, v]) for v in (A, dt, lag)))
    B = jnp.concatenate([params["B_re"], params["B_im"]])
    C = jnp.concatenate([params["C_re"], -params["C_im"]], -1)
    length, n_states = x.shape[-2], math.prod(shape)
    bytes_per_step = n_states * dtype.itemsize
    if method == "auto":
        chosen = plan.linear_method(
            time_invariant=True, length=length, n_bytes=bytes_per_step * length
        )
        method = "sequential" if chosen == "sequential" else "associative"

    def one_block(x, state, reset, lengths):
        u = matmul_f32(x, B.T)
        before = state[..., 0, :], state[..., 1, :]
        if method == "sequential":
            z, y = _by_steps(oscillators, u, before, reset)
        else:
            power = _first_power(discretization, oscillators)
            z, y = _by_pairs(oscillators, power, u, before, reset)
        after = [
            state_after(h, h_0, lengths) for h, h_0 in zip((z, y), before, strict=True)
        ]
        return matmul_f32(y, C.T), jnp.stack(after, -2)

    size = plan.state_block(length, bytes_per_step, method=method)
    if size < length:
        constants = oscillators, B, C
        options = {"size": size, "params": constants}
        y, state = map_blocks(one_block, x, state, reset, lengths, **options)
    else:
        y, state = one_block(x, state, reset, lengths)
    return y + promoted_like(params["feedthrough"], x) * x, state


def _by_steps(oscillators, u, before, reset):
    """Returns velocities and positions after each step, ``(*b, l, m)``."""
    axis = u.ndim - 2

    def step(h, inputs):
        u, reset = inputs
        h = oscillators.step(*_zero_at_resets(h, reset), u)
        return h, h

    inputs = jax.tree.map(lambda v: jnp.moveaxis(v, axis, 0), (u, reset))
    _, h = jax.lax.scan(step, before, inputs)
    return tuple(jnp.moveaxis(v, 0, axis) for v in h)


def _by_pairs(oscillators, power, u, before, reset):
    """Returns velocities and positions after each step, by a scan of depth ``log l``.

    As `jax.lax.associative_scan`, whose elements would be matrices: here those of a
    level share the power of ``M`` of the steps that they span.
    """
    zero = jnp.zeros_like(u)
    first = oscillators.step(zero, zero, u)
    # The state before the first step is one more input of this step.
    start = _zero_at_resets(before, None if reset is None else reset[..., 0])
    first = [
        v.at[..., 0, :].add(carried)
        for v, carried in zip(first, power(*start), strict=True)
    ]

    def states(power, inputs, reset):
        length = inputs[0].shape[-2]
        if length == 1:
            return inputs
        n_pairs = length // 2
        of_left, of_right = (
            [v[..., i : 2 * n_pairs : 2, :] for v in inputs] for i in (0, 1)
        )
        right_reset = of_any = None
        if reset is not None:
            left_reset, right_reset = (reset[..., i : 2 * n_pairs : 2] for i in (0, 1))
            of_any = left_reset | right_reset
        carried = _zero_at_resets(power(*of_left), right_reset)
        of_pairs = [v + c for v, c in zip(of_right, carried, strict=True)]
        right = states(power.squared(), of_pairs, of_any)
        # Before a left step is the right one of the pair before; the last may be alone.
        n_left = length - n_pairs
        before = [v[..., : n_left - 1, :] for v in right]
        later_reset = None if reset is None else reset[..., 2::2]
        carried = _zero_at_resets(power(*before), later_reset)
        left = [
            v[..., ::2, :].at[..., 1:, :].add(c)
            for v, c in zip(inputs, carried, strict=True)
        ]
        return [_interleave(*pair) for pair in zip(left, right, strict=True)]

    return states(power, first, reset)


def _interleave(left, right):
    """Steps ``left[0], right[0], left[1]`` and so on; ``left`` may have one more."""
    n_pairs = right.shape[-2]
    pairs = jnp.stack([left[..., :n_pairs, :], right], -2)
    steps = pairs.reshape(*right.shape[:-2], 2 * n_pairs, right.shape[-1])
    return jnp.concatenate([steps, left[..., n_pairs:, :]], -2)


def _zero_at_resets(h, reset):
    """Zeros in velocities and positions where the state is reset."""
    if reset is None:
        return h
    return [jnp.where(append_axes(reset, v.ndim), 0, v) for v in h]
