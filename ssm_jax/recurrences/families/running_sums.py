"""Running sums of a statistic with feedback: the base class of SRU and FRU."""

import abc
import functools
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ssm_jax.fields import check_fields
from ssm_jax.kernels.arguments import check_draw, check_flags
from ssm_jax.kernels.nonlinear import SolverStats
from ssm_jax.kernels.precision import affine_f32, matmul_f32
from ssm_jax.kernels.promotion import promoted_like
from ssm_jax.kernels.recurrence import linear_recurrence
from ssm_jax.recurrences.families.base import Params
from ssm_jax.recurrences.families.nonlinear import Nonlinear
from ssm_jax.recurrences.families.projected import ProjectedSums
from ssm_jax.types import Array, Float, Int, PRNGKey, Steps

Activation = Literal["relu", "tanh", "identity"]
ACTIVATIONS = {"relu": jax.nn.relu, "tanh": jnp.tanh, "identity": lambda x: x}

# Standard deviation of the truncated normal initialization of every matrix.
STD = 0.1


class Letters(NamedTuple):
    """Parameter names of a unit's paper, or the parameters with these names.

    Attributes:
      feedback: ``W_1``, from the sums to the feedback, and its bias.
      feedback_bias: ``b_1``.
      statistic: ``W_2``, from the feedback to the statistic.
      input: ``U``, from the input to the statistic, and the bias of both.
      input_bias: ``b_2``.
      output: ``Y``, from the sums to the output, and its bias.
      output_bias: ``b_y``.
    """

    feedback: Any
    feedback_bias: Any
    statistic: Any
    input: Any
    input_bias: Any
    output: Any
    output_bias: Any


@dataclass(frozen=True, kw_only=True)
class RunningSums(Nonlinear):
    r"""Several running sums of one statistic, which depends on the previous sums.

    .. math::
      g_t = \phi(W_1 u_{t-1} + b_1), \quad
      s_t = \phi(W_2 g_t + U x_t + b_2), \quad
      u_t^k = a_k u_{t-1}^k + c_t^k s_t, \quad
      o_t = \phi(Y u_t + b_y)

    The base class of `SRU` and `FRU`, which define ``a`` and ``c``. The state is ``u``,
    but the solver iterates on ``W_1 u``, represented by `ProjectedSums`; outputs are
    computed from ``Y u``, represented likewise.

    Attributes:
      d_statistic: Number of entries of ``s`` and of each sum.
      d_feedback: Number of entries of ``g``. 0: no feedback.
      d_output: Number of entries of ``o``.
      activation: ``phi``.
    """

    d_statistic: int = 200
    d_feedback: int = 60
    d_output: int = 200
    activation: Activation = "relu"
    solver = "picard"
    letters: ClassVar[Letters]

    def __post_init__(self):
        check_fields(self)
        sizes = self.d_statistic, self.d_feedback + 1, self.d_output
        if min(sizes) < 1:
            raise ValueError(
                "`d_statistic` and `d_output` must be positive and `d_feedback` at "
                f"least 0, got {self.d_statistic}, {self.d_output} and "
                f"{self.d_feedback}; the published sizes are 200 (10 in an FRU), 200 "
                "and 60."
            )

    @property
    @abc.abstractmethod
    def decays(self) -> tuple[float, ...]:
        """Decay of each sum, ``a``."""

    @abc.abstractmethod
    def weights(
        self, params: Params, steps: Int[Array, "*c l"]
    ) -> Float[Array, "*c l k"]:
        """Returns ``c``, constant over time unless `tracks_position` is true."""

    @property
    def n_sums(self) -> int:
        """Number of sums, ``k``."""
        return len(self.decays)

    @property
    def d_hidden(self) -> int:
        """Number of entries of all sums."""
        return self.n_sums * self.d_statistic

    def d_out(self, d_in: int) -> int:
        """Returns ``d_output``, for every ``d_in``."""
        del d_in
        return self.d_output

    def d_in(self, params: Params) -> int:
        """Returns the input width that the parameters were initialized for."""
        return len(self.named(params).input)

    def init(self, key: PRNGKey, d_in: int) -> Params:
        """Initializes the parameters; see the class for their shapes."""
        check_draw(key, d_in)
        # Four keys also without feedback, so that the other parameters do not change.
        key_in, key_feedback, key_feedback_sums, key_out = jax.random.split(key, 4)
        n, d, r = self.d_hidden, self.d_statistic, self.d_feedback
        initial = Letters(
            feedback=truncated_normal(key_feedback, (n, r)),
            feedback_bias=jnp.zeros(r),
            statistic=truncated_normal(key_feedback_sums, (r, d)),
            input=truncated_normal(key_in, (d_in, d)),
            input_bias=jnp.zeros(d),
            output=truncated_normal(key_out, (n, self.d_output)),
            output_bias=jnp.zeros(self.d_output),
        )
        # Without feedback its matrices are empty; empty leaves are not parameters.
        return {
            name: value
            for name, value in zip(self.letters, initial, strict=True)
            if value.size
        }

    def named(self, params: Params) -> Letters:
        """Returns the parameters by their role; None for those that do not exist.

        Args:
          params: Parameters, as returned by `init`.
        """
        return Letters(*map(params.get, self.letters))

    def run(self, params, x, steps, h0, solver, *, reset, lengths, last_only):
        """Evaluates by projections of the sums; see `ProjectedSums`."""
        weights = self.named(params)
        # The input part of all steps in one product, outside of the solver.
        projected_input = affine_f32(x, weights.input, weights.input_bias)
        # Constants take the dtype of the parameters.
        c = self.weights(params, steps).astype(projected_input.dtype)
        s, stats = self._statistics(params, projected_input, c, h0, solver)
        sums = h0.reshape(*h0.shape[:-1], self.n_sums, self.d_statistic)
        # Only the final sums are needed: those of all steps would be (b, l, k d).
        sums = weighted_sums_final_state(
            self.decays, c, s, sums, reset=reset, lengths=lengths
        )
        h = sums.reshape(h0.shape)
        if last_only:
            read = matmul_f32(h[..., None, :], weights.output)
        else:
            read = self._read(params, c, s, h0, reset)
        return self._phi(read + promoted_like(weights.output_bias, read)), h, stats

    def decay(self, params):
        """Returns the decay of the projected sums, and zeros for ``s``."""
        # `s` is part of the solver's state, for the outputs, and does not accumulate.
        decay = np.append(self._feedback_sums.decay, np.zeros(self.d_statistic))
        # Constants take the dtype of the parameters: float64 has all its digits.
        return jnp.asarray(decay, self.named(params).output.dtype)

    def nonlinear_term(self, params, h, u):
        """Returns the increment of the projected sums, followed by ``s``."""
        projected_input, c, matrix = u
        g = self._feedback_sums.recombine(params["maps"], h[..., : -self.d_statistic])
        g = self._phi(g + promoted_like(params["bias"], g))
        s = self._phi(projected_input + matmul_f32(g, params["kernel"]))
        increment = self._feedback_sums.increment(params["maps"], c, s, matrix)
        return jnp.concatenate([increment, s], -1)

    def _statistics(self, params, projected_input, c, h0, solver):
        """``s`` of all steps, and the statistics of the solver."""
        if not self.d_feedback:
            # `s` does not depend on the sums: nothing is solved.
            ones = jnp.ones((), bool)
            return self._phi(projected_input), SolverStats(
                jnp.zeros((), jnp.int32), ones
            )
        weights = self.named(params)
        maps, matrices = self._split_map(self._feedback_sums, weights.feedback, c)
        feedback = {
            "maps": maps,
            "bias": weights.feedback_bias,
            "kernel": weights.statistic,
        }
        projected_h0 = self._feedback_sums.project(maps, h0)
        # `s` before the first step is never read: its decay is 0.
        start = jnp.concatenate(
            [projected_h0, jnp.zeros_like(projected_input[..., 0, :])], -1
        )
        v, stats = solver(
            self.nonlinear_term, feedback, (projected_input, c, matrices), start
        )
        return v[..., -self.d_statistic :], stats

    def _read(self, params, c, s, h0, reset):
        """``Y u`` of all steps."""
        # Y u by its own linear recurrence, without the sums of all steps.
        read = ProjectedSums(self.decays, self.d_statistic, self.d_output)
        maps, matrices = self._split_map(read, self.named(params).output, c)
        increment = read.increment(maps, c, s, matrices)
        start = read.project(maps, h0)
        v, _ = linear_recurrence(
            jnp.asarray(read.decay, increment.dtype), increment, start, reset=reset
        )
        return read.recombine(maps, v)

    def _split_map(self, projected, kernel, c):
        """Returns the parts of the map, and per-step matrices if rows share them."""
        if not self.tracks_position:
            # `c` is the same at every step and in every row.
            return projected.maps(kernel, c.reshape(-1, self.n_sums)[0]), None
        maps = projected.maps(kernel)
        # Matrices of each row and step, (b, l, d, m r), would exceed what they save.
        rows_differ = c[..., 0, 0].size > 1
        return maps, None if rows_differ else projected.matrices(maps, c)

    @functools.cached_property
    def _feedback_sums(self) -> ProjectedSums:
        """The projection for ``W_1 u``."""
        return ProjectedSums(self.decays, self.d_statistic, self.d_feedback)

    def _phi(self, x):
        return ACTIVATIONS[self.activation](x)


def truncated_normal(key: PRNGKey, shape: tuple[int, ...]) -> Float[jax.Array, "..."]:
    """Returns normal samples, std 0.1 before truncation at two std."""
    return STD * jax.random.truncated_normal(key, -2, 2, shape)


def weighted_sums_final_state(
    decays: tuple[float, ...],
    weights: Float[Array, "*c l k"],
    s: Float[Array, "*b l d"],
    h0: Float[Array, "*b k d"],
    *,
    reset: Steps | None = None,
    lengths: Int[Array, "*b"] | None = None,
) -> Float[Array, "*b k d"]:
    """Returns the final ``h`` of ``h_t^k = decays_k h_{t-1}^k + weights_t^k s_t``.

    Each ``s_t`` is weighted by its remaining decay at the end: one matrix product, and
    no states in memory.
    """
    check_flags("reset", reset)
    length = s.shape[-2]
    n = jnp.asarray(length) if lengths is None else lengths
    last = n[..., None] - 1
    age = last - promoted_like(jnp.arange(length), last)
    included, from_h0 = age >= 0, jnp.ones((), bool)
    if reset is not None:
        segment = jnp.cumsum(reset, -1)
        latest = jnp.max(jnp.where(included, segment, 0), -1, keepdims=True)
        in_last = segment == latest
        included = promoted_like(included, in_last) & in_last
        from_h0 = latest[..., 0] == 0
    a = jnp.asarray(decays, s.dtype)
    # A reset removes the contributions of the initial state and of earlier segments.
    # The clip avoids 0**-1; 0**0 is 1, so that a decay of 0 holds the last step.
    remaining = weights * promoted_like(_powers(a, jnp.maximum(age, 0)), weights)
    remaining = jnp.where(included[..., None], remaining, 0)
    if reset is not None:
        # Select, not multiply: a value that is not finite must not cross a reset.
        s = jnp.where(included[..., None], s, 0)
        h0 = jnp.where(from_h0[..., None, None], h0, 0)
    sums = jnp.matmul(jnp.swapaxes(remaining, -1, -2), s, precision="highest")
    return promoted_like(_powers(a, n)[..., None], h0) * h0 + sums


def _powers(a, steps):
    """Returns ``a**steps``, ``(*s, k)``."""
    # `jax.lax.pow` takes integers as they are; `**` would promote them.
    steps = steps[..., None]
    return jax.lax.pow(jax.lax.broadcast_to_rank(a, steps.ndim), steps)
