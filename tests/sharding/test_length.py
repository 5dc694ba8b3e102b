"""Every recurrence over a length that is sharded over devices, as over one device."""

import functools
import re

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec as P

from ssm_jax.recurrences import DLR, S4, S4D, S5, SelectiveSSM, SGConv
from ssm_jax.sharding import LengthSharded
from tests.bad_inputs import refuses
from tests.recurrences.table import ROWS
from tests.tiers import tiered

BATCH, LENGTH, WIDTH = 8, 24, 2
CUT = ("dlr_cut_bidirectional", "sgconv_bidirectional", "s4_bidirectional")
# Widths of their own, where a recurrence has one.
WIDTHS = {row.recurrence: row.width for row in ROWS.values()}
SHARDED = {name: row.recurrence for name, row in ROWS.items() if name not in CUT}
# One of each kind: diagonal states in both directions, and pieces iterated upon.
FULL = ("dlr_bidirectional", "gru")


def mesh_of(data: int, seq: int) -> Mesh:
    """Devices for the rows of a batch and for the pieces of each sequence."""
    devices = np.array(jax.devices()[: data * seq])
    return Mesh(devices.reshape(data, seq), ("data", "seq"))


def sharded(recurrence, mesh):
    """`Recurrence.apply` of whole sequences, evaluated over a mesh."""
    steps, rows = P("data", "seq"), P("data")

    def apply(params, x, state, reset, mask, **of_steps):
        def piece(params, x, state, reset, mask, of_steps):
            options = {"reset": reset, "mask": mask, **of_steps}
            return LengthSharded(recurrence, "seq").apply(params, x, state, **options)

        mapped = jax.shard_map(
            piece,
            mesh=mesh,
            in_specs=(P(), steps, rows, steps, steps, steps),
            out_specs=(steps, rows),
        )
        return mapped(params, x, state, reset, mask, of_steps)

    return apply


@functools.cache
def problem(recurrence):
    """Parameters, inputs, a state before them and the weights of a loss."""
    rng = np.random.default_rng(0)

    def draw(shape, dtype=np.float32):
        values = rng.normal(size=shape) + 1j * rng.normal(size=shape)
        return (values if np.issubdtype(dtype, complex) else values.real).astype(dtype)

    width = WIDTHS.get(recurrence, WIDTH)
    params = recurrence.init(jax.random.key(0), width)
    state = recurrence.initial_state((BATCH,), width)
    state = None if state is None else draw(state.shape, state.dtype)
    x = draw((BATCH, LENGTH, width))
    return params, x, state, draw((BATCH, LENGTH, recurrence.d_out(width)))


def with_gradients(apply, recurrence, *, reset, mask, **options):
    """Output, final state and the gradients of a loss in all inputs."""
    params, x, state, weights = problem(recurrence)

    def loss(params, x, state):
        y, last = apply(params, x, state, reset, mask, **options)
        value = jnp.sum(weights * y)
        if last is not None:
            value += jnp.sum(jnp.square(jnp.abs(last)))
        return value, (y, last)

    arguments = (0, 1) if state is None else (0, 1, 2)
    return jax.jit(jax.grad(loss, arguments, has_aux=True))(params, x, state)


def flags():
    """Resets and padding, also of whole pieces and at their boundaries."""
    rng = np.random.default_rng(1)
    reset = rng.random((BATCH, LENGTH)) < 0.15
    mask = rng.random((BATCH, LENGTH)) < 0.7
    mask[0, 6:18], mask[1, 9:] = False, False
    reset[:, LENGTH // 2] = True
    return {"reset": reset, "mask": mask}


PLAIN = {"reset": None, "mask": None}


EACH_FLAGS = {"plain": PLAIN, "flags": flags()}


@pytest.mark.parametrize("flags", tiered(EACH_FLAGS, 0, full=["flags"]))
@pytest.mark.full
@pytest.mark.parametrize(
    "mesh", tiered([(2, 4), (1, 8), (4, 2), (8, 1)], 0, full=1), ids=str
)
@pytest.mark.parametrize("recurrence", tiered(SHARDED, 0, full=FULL))
def test_sharded_length_has_the_values_and_gradients_of_the_whole(
    recurrence, mesh, flags
):
    def whole(params, x, state, reset, mask):
        return recurrence.apply(params, x, state, reset=reset, mask=mask)

    expected = with_gradients(whole, recurrence, **flags)
    found = with_gradients(sharded(recurrence, mesh_of(*mesh)), recurrence, **flags)
    check(found, expected)


def check(found, expected):
    """Compares the results of `with_gradients` to 1e-5 of the largest."""
    assert jax.tree.structure(found) == jax.tree.structure(expected)

    def parts(given):
        # The gradient of a step size is a difference of terms like those of the other
        # parameters, and as exact as they are: all parameters have one scale.
        (of_params, *of_others), outputs = given
        return [of_params, *jax.tree.leaves((of_others, outputs))]

    for part, wanted_part in zip(parts(found), parts(expected), strict=True):
        leaves = jax.tree.leaves(wanted_part)
        scale = 1e-3 + max(float(jnp.max(jnp.abs(leaf))) for leaf in leaves)
        for one, other in zip(jax.tree.leaves(part), leaves, strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-5 * scale)


@pytest.mark.full
@pytest.mark.parametrize("n", tiered([8, 3], 0, full=1))
@pytest.mark.parametrize("recurrence", tiered(SHARDED, 0, full=("gru",)))
def test_values_that_are_not_finite_stay_in_their_segment(recurrence, n):
    """Of one row, inputs of one channel; of another, the state before the sequence."""
    params, x, state, weights = problem(recurrence)
    x, reset = x.copy(), flags()["reset"]
    x[0, 4, 0] = np.inf
    if state is not None:
        state = state.copy()
        state[1] = np.nan
    mask = np.ones_like(reset)

    def whole(params, x, state, reset, mask):
        return recurrence.apply(params, x, state, reset=reset, mask=mask)

    def evaluated(apply):
        def loss(params, x, state):
            y, last = apply(params, x, state, reset, mask)
            value = jnp.sum(weights * jnp.where(jnp.isfinite(y), y, 0))
            return value, (y, last)

        arguments = (0, 1) if state is None else (0, 1, 2)
        return jax.jit(jax.grad(loss, arguments, has_aux=True))(params, x, state)

    expected, (y, last) = evaluated(whole)
    found, (given, given_last) = evaluated(sharded(recurrence, mesh_of(1, n)))
    chex.assert_tree_all_finite((expected, last))
    assert not np.all(np.isfinite(y))
    check((found, given_last), (expected, last))
    largest = np.max(np.abs(y), where=np.isfinite(y), initial=1)
    np.testing.assert_allclose(given, y, rtol=0, atol=1e-5 * largest)


TAKES_DT = {
    "s4d": S4D(d_state=4, dt_min=0.05, dt_max=0.5),
    "s5": S5(d_state=4, blocks=2, dt_min=0.05, dt_max=0.5),
    "selective": SelectiveSSM(d_state=3, dt_rank=2),
}


DT = np.random.default_rng(2).uniform(0, 3, (BATCH, LENGTH)).astype(np.float32)


@pytest.mark.full
@pytest.mark.parametrize("flags", tiered(EACH_FLAGS, 0, full=["flags"]))
@pytest.mark.parametrize("n", tiered([8, 3], 0, full=1))
@pytest.mark.parametrize("recurrence", tiered(TAKES_DT, 0, full=("selective",)))
def test_steps_of_different_sizes_have_the_values_of_the_whole(recurrence, n, flags):
    def whole(params, x, state, reset, mask, dt):
        return recurrence.apply(params, x, state, reset=reset, mask=mask, dt=dt)

    expected = with_gradients(whole, recurrence, dt=DT, **flags)
    apply = sharded(recurrence, mesh_of(1, n))
    check(with_gradients(apply, recurrence, dt=DT, **flags), expected)


@pytest.mark.full
def test_one_piece_with_steps_of_different_sizes_is_the_whole():
    recurrence = TAKES_DT["s4d"]
    params, x, state, _ = problem(recurrence)
    apply = jax.jit(sharded(recurrence, mesh_of(1, 1)))
    given = apply(params, x, state, None, None, dt=DT)
    expected = jax.jit(recurrence.apply)(params, x, state, dt=DT)
    chex.assert_trees_all_close(given, expected, rtol=0, atol=1e-5)


def test_steps_of_different_sizes_of_two_directions_are_refused():
    recurrence = S4D(d_state=4, bidirectional=True)
    params, x, state, _ = problem(recurrence)
    with refuses("dt", rule="bidirectional"):
        sharded(recurrence, mesh_of(1, 1))(
            params, x, state, None, None, dt=np.ones(x.shape[:-1], np.float32)
        )


@pytest.mark.full
@pytest.mark.parametrize("n", tiered([8, 2], 0, full=1))
def test_only_states_travel(n):
    """log2 n pairs of states and one more; and the final state to all devices."""
    length, d = 512, 16
    recurrence = DLR(d_state=4)
    params = recurrence.init(jax.random.key(0), d)
    x = jnp.zeros((1, length, d))
    apply = sharded(recurrence, mesh_of(1, n))
    compiled = jax.jit(apply).lower(params, x, None, None, None).compile().as_text()
    assert "all-gather(" not in compiled and "all-to-all(" not in compiled
    state = d * 4 * 8  # bytes of complex64
    sent = sum(
        np.prod([int(size) for size in shape.split(",")]) * 8
        for shape in re.findall(r"c64\[([\d,]+)\]\S* collective-permute\(", compiled)
    )
    assert 0 < sent <= 2 * (np.log2(n) + 1) * state
    assert "f32[1,64,16]{2,1,0} collective-permute" not in compiled


@pytest.mark.full
@pytest.mark.parametrize(
    "recurrence",
    [
        S4(d_state=4, bidirectional=True),
        SGConv(length=8, d_state=2, bidirectional=True),
        DLR(d_state=4, bidirectional=True, max_kernel_length=4),
    ],
    ids=["s4", "sgconv", "dlr"],
)
def test_direction_without_a_state_is_refused(recurrence):
    params, x, state, _ = problem(recurrence)
    with refuses("recurrence", type(recurrence).__name__, rule="causal"):
        sharded(recurrence, mesh_of(1, 8))(params, x, state, None, None)


@pytest.mark.full
def test_layer_takes_it_as_any_recurrence():
    """Parameters and groups are those of the recurrence."""
    recurrence = S5(d_state=4, blocks=2)
    wrapped = LengthSharded(recurrence, "seq")
    assert wrapped.groups() == recurrence.groups()
    one, other = (r.init(jax.random.key(0), WIDTH) for r in (recurrence, wrapped))
    assert jax.tree.all(jax.tree.map(np.array_equal, one, other))
