"""The contract of maps over sequences with a state: recurrences and layers."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax.core import meta

from ssm_jax.recurrences import ParamGroup, Recurrence
from ssm_jax.recurrences.families.base import Params
from ssm_jax.testing.comparison import check, check_close, fail
from ssm_jax.types import Method, Outputs, PyTree

_BATCH, _PREFIX = 3, 3


class _SequenceMap(NamedTuple):
    """What the checks need of a recurrence or a layer."""

    name: str  # in messages
    apply: Callable[..., tuple[Outputs, PyTree]]  # of (params, x, state, **options)
    params: PyTree
    x: np.ndarray  # (_BATCH, l, d)
    start: PyTree  # a state after some steps; None if it has none
    tolerance: float  # of differences, relative to the largest value


def _draw_inputs(d: int, length: int) -> np.ndarray:
    if length < 4:
        raise ValueError(f"`length` must be at least 4, got {length}; 17 is usual.")
    rng = np.random.default_rng(0)
    return rng.standard_normal((_BATCH, length, d)).astype(np.float32)


def _state_after_some_steps(apply, params, x, module, d):
    """A state that the map itself has made; None if it has none."""
    state = module.initial_state((_BATCH,), d)
    if state is None:
        return None
    return _apply(apply, params, -x[:, :_PREFIX], state)[1]


def _draw_weights(shape: tuple[int, ...]) -> np.ndarray:
    """Weights of the loss whose gradients are compared."""
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


# Compiled once for all checks of a map: `apply` is compared by its value.
_compiled = functools.partial(jax.jit, static_argnames=("apply", "method"))


@_compiled
def _apply(apply, params, x, state, **options):
    return apply(params, x, state, **options)


@_compiled
def _apply_with_gradients(apply, params, x, state, weights, **options):
    def loss(params, x, state):
        y, last = apply(params, x, state, **options)
        total = jnp.sum(weights * y)
        for leaf in jax.tree.leaves(last):
            total += jnp.sum(jnp.real(leaf * _draw_weights(leaf.shape)))
        return total, (y, last)

    argnums = (0, 1) if state is None else (0, 1, 2)
    gradients, out = jax.grad(loss, argnums, has_aux=True, allow_int=True)(
        params, x, state
    )
    return out, (*gradients, None)[:3]


def _outputs(m: _SequenceMap, x, state, **options) -> tuple[Outputs, PyTree]:
    return _apply(m.apply, m.params, x, state, **options)


def _evaluate(m: _SequenceMap, x, state, *, weights=None, **options) -> Any:
    """``(y, last)`` and the gradients of a loss of both."""
    if weights is None:
        y, _ = jax.eval_shape(m.apply, m.params, x, state)
        weights = _draw_weights(y.shape)
    return _apply_with_gradients(m.apply, m.params, x, state, weights, **options)


@dataclasses.dataclass(frozen=True)
class _StepByStep:
    """Evaluates one step at a time, each from the state after the last."""

    apply: Callable[..., tuple[Outputs, PyTree]]

    def __call__(self, params, x, state=None):
        def step(state, x):
            y, state = self.apply(params, x[:, None], state)
            return state, y[:, 0]

        last, y = jax.lax.scan(step, state, jnp.moveaxis(x, 1, 0))
        return jnp.moveaxis(y, 0, 1), last


def check_recurrence(
    recurrence: Recurrence, *, d_in: int = 2, length: int = 17, tolerance: float = 1e-4
) -> None:
    """Checks that a recurrence keeps the contract of `Recurrence`.

    Token by token, with its state handed on, a recurrence defines its outputs; all
    methods, pieces, segments and padded sequences are compared with that, in value and
    gradient.

    Args:
      recurrence: The recurrence; a bidirectional one has no state.
      d_in: Width of the inputs.
      length: Number of steps, at least 4; odd, since an even one hides mistakes.
      tolerance: Largest difference of values and gradients, relative to the largest.

    Raises:
      AssertionError: A property does not hold; the message says which, by how much and
        what usually fixes it.
      ValueError: ``length`` is less than 4.

    Example, which compiles for half a minute::

      check_recurrence(DLR(d_state=2))
    """
    name = type(recurrence).__name__
    check(
        isinstance(recurrence, Recurrence),
        f"{name}: `init`, `initial_state`, `apply`, `d_out` and `groups` must exist",
        "inherit from `ssm_jax.recurrences.Recurrence`",
    )
    x = _draw_inputs(d_in, length)
    params = _init_params(recurrence, name, d_in)
    apply = recurrence.apply
    sequence_map = _SequenceMap(
        name,
        apply,
        params,
        x,
        _state_after_some_steps(apply, params, x, recurrence, d_in),
        tolerance,
    )
    y, _ = jax.eval_shape(apply, params, x)
    check(
        y.shape == (*x.shape[:-1], recurrence.d_out(d_in)),
        f"{name}: outputs must be (*b, l, d_out), got {y.shape}",
        f"`d_out({d_in})` returns {recurrence.d_out(d_in)}",
    )
    _check_map(sequence_map)
    if sequence_map.start is None:
        _check_two_directions(sequence_map)
    _check_methods(sequence_map)
    _check_dtypes(sequence_map)


def check_layer(
    layer: nn.Module, *, d_model: int = 4, length: int = 17, tolerance: float = 1e-4
) -> None:
    """Checks that a layer over time keeps the contract of `Recurrent`.

    A layer is called as ``layer(x, state, reset=..., mask=..., train=...)``, returns
    ``(y, state)``, and has ``initial_state(batch_shape, d_model)``.

    Args:
      layer: The Linen module; one that is bidirectional, or attends to all steps, has
        no state.
      d_model: Width of the inputs and outputs.
      length: Number of steps, at least 4.
      tolerance: As for `check_recurrence`.

    Raises:
      AssertionError: A property does not hold; see `check_recurrence`.
      ValueError: ``length`` is less than 4.

    Example, which compiles for half a minute::

      check_layer(Recurrent(DLR(d_state=2)))
    """
    name = type(layer).__name__
    x = _draw_inputs(d_model, length)
    variables = meta.unbox(jax.jit(layer.init)(jax.random.key(0), x))
    others = {key: value for key, value in variables.items() if key != "params"}

    def apply(params, x, state=None, **options):
        return layer.apply({"params": params, **others}, x, state, **options)

    params = variables.get("params", {})
    sequence_map = _SequenceMap(
        name,
        apply,
        params,
        x,
        _state_after_some_steps(apply, params, x, layer, d_model),
        tolerance,
    )
    y, _ = jax.eval_shape(apply, params, x)
    check(
        y.shape == x.shape,
        f"{name}: outputs must have the shape of the inputs, {x.shape}, got {y.shape}",
        "a residual connection adds them; end with a linear map to the width of `x`",
    )
    _check_map(sequence_map)


def _check_map(m: _SequenceMap) -> None:
    """Checks what recurrences and layers have in common."""
    # One program with gradients serves every check of whole sequences.
    whole = _evaluate(m, m.x, m.start)
    (y, last), _ = whole
    _check_rows(m, y)
    if m.start is None:
        check(
            last is None,
            f"{m.name}: the state must be None where `initial_state` is, got one",
            "a bidirectional map cannot continue a sequence",
        )
    else:
        _check_causality(m, y)
        check_close(
            whole,
            _evaluate(m._replace(apply=_StepByStep(m.apply)), m.x, m.start),
            m.tolerance,
            f"{m.name}: the whole sequence must be what single steps give",
            "the state must hold all that later outputs depend on",
        )
    _check_padding(m, whole)
    _check_segments(m)


def _check_causality(m, y):
    x = m.x.copy()
    x[:, -1] += 1
    changed, _ = _evaluate(m, x, m.start)[0]
    check_close(
        changed[:, :-1],
        y[:, :-1],
        m.tolerance,
        f"{m.name}: outputs must not depend on later inputs",
        "shift what looks ahead; a bidirectional map returns None as `initial_state`",
    )


def _check_rows(m, y):
    x = m.x.copy()
    x[1] *= -2
    changed, _ = _evaluate(m, x, m.start)[0]
    check_close(
        changed[::2],
        y[::2],
        m.tolerance,
        f"{m.name}: rows of a batch must not depend on each other",
        "reduce over time or channels only; moments over the batch need masks",
    )


def _check_padding(m, whole):
    """Rows with three padded steps after the data, before them, and in between."""
    n = m.x.shape[1]
    at = np.stack([np.arange(n), np.arange(n) + 3, np.arange(n) + 1])
    at[2, n // 2 :] += 1
    mask = np.zeros((_BATCH, n + 3), bool)
    np.put_along_axis(mask, at, True, 1)

    def padded(values, by):
        wider = np.full((_BATCH, n + 3, values.shape[-1]), by, np.float32)
        np.put_along_axis(wider, at[..., None], values, 1)
        return wider

    # NaN, so that a padded step that is multiplied by 0 is noticed too.
    x = padded(m.x, np.nan)
    # Outputs at padded steps are free, as long as a loss without them is.
    weights = padded(_draw_weights(whole[0][0].shape), 0)
    (y, last), (params_gradient, x_gradient, state_gradient) = _evaluate(
        m, x, m.start, mask=mask, weights=weights
    )
    valid_outputs = jnp.take_along_axis(y, at[..., None], 1), last
    valid_gradient = jnp.take_along_axis(x_gradient, at[..., None], 1)
    remedy = (
        "replace padded inputs by 0 with `jnp.where`, which stops NaN too; "
        "`ssm_jax.recurrences.families.padding.apply_to_valid_steps` left-aligns the "
        "valid steps"
    )
    rule = f"{m.name}: padded steps must not count, whatever they hold"
    check_close(
        (valid_outputs, (params_gradient, valid_gradient, state_gradient)),
        whole,
        m.tolerance,
        rule,
        remedy,
    )
    check(
        not np.any(np.asarray(x_gradient)[~mask]),
        f"{m.name}: padded steps must have no gradient, got one",
        remedy,
    )


def _check_segments(m):
    k = m.x.shape[1] // 2
    reset = np.arange(m.x.shape[1]) == k
    reset = np.tile(reset, (_BATCH, 1))
    whole = _outputs(m, m.x, m.start, reset=reset)
    first, _ = _outputs(m, m.x[:, :k], m.start)
    second, last = _outputs(m, m.x[:, k:], None)
    check_close(
        whole,
        (jnp.concatenate([first, second], 1), last),
        m.tolerance,
        f"{m.name}: a step with `reset` must begin a new sequence",
        "the state before such a step is that of `initial_state`",
    )


def _check_two_directions(m):
    x = m.x.copy()
    x[:, 1:] += 1
    changed, _ = _evaluate(m, x, None)[0]
    y, _ = _evaluate(m, m.x, None)[0]
    check(
        np.all(np.any(changed[:, 0] != y[:, 0], -1)),
        f"{m.name}: outputs do not depend on later inputs, so that it has a state",
        "return it, and zeros as `initial_state`, or the map cannot generate",
    )


def _check_methods(m):
    auto, offered = _evaluate(m, m.x, m.start), []
    for method in get_args(Method)[1:]:
        try:
            evaluated = _evaluate(m, m.x, m.start, method=method)
        except ValueError as error:
            # A method that is not offered is refused by name.
            if "`method" not in str(error):
                raise
            continue
        offered.append(method)
        check_close(
            evaluated,
            auto,
            m.tolerance,
            f"{m.name}: method={method!r} must give what 'auto' gives",
            "methods change the cost, not the values",
        )
    if not offered:
        fail(
            f"{m.name}: at least one method beside 'auto' must be offered",
            "'sequential' evaluates step by step",
        )


def _check_dtypes(m):
    y, last = _outputs(m, jnp.asarray(m.x, jnp.bfloat16), m.start)
    check(
        y.dtype == jnp.bfloat16,
        f"{m.name}: outputs must have the dtype of the inputs, bfloat16, got {y.dtype}",
        "cast the outputs, not the states",
    )
    dtypes = {leaf.dtype.name for leaf in jax.tree.leaves(last)}
    check(
        not dtypes & {"bfloat16", "float16"},
        f"{m.name}: states must be float32 for bfloat16 inputs too, got {dtypes}",
        "sums of many steps lose all digits in bfloat16",
    )


def _init_params(recurrence: Recurrence, name: str, d_in: int) -> Params:
    """Initial parameters, which are float32, and grouped by `groups`."""
    params, same = (recurrence.init(jax.random.key(0), d_in) for _ in range(2))
    dtypes = {key: leaf.dtype for key, leaf in params.items()}
    check(
        set(dtypes.values()) == {jnp.dtype(jnp.float32)},
        f"{name}: parameters must be float32, got {dtypes}",
        "give real and imaginary parts names of their own",
    )
    check_close(
        params, same, 0.0, f"{name}: `init` must be a function of its key", "see `key`"
    )
    groups = recurrence.groups()
    check(
        groups.keys() <= params.keys()
        and all(isinstance(group, ParamGroup) for group in groups.values()),
        f"{name}: `groups` must map parameters to `ParamGroup`, got {groups}",
        f"the parameters are {sorted(params)}",
    )
    return params
