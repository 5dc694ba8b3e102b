"""What a batch starts from: its own states, others', noise; and what they come to."""

import dataclasses
from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from ssm_jax.config import spec
from ssm_jax.layers import ChannelMixing, RecurrentLayer
from ssm_jax.models import Block, SequenceModel, TokenEncoder
from ssm_jax.recurrences import DLR
from ssm_jax.tasks import TextFolder, n_batches
from ssm_jax.training import (
    DataParallel,
    Optimizer,
    TrainConfig,
    WorkDir,
    create,
    loss_sums,
    train,
    train_step,
)
from ssm_jax.training.initial import StateInit, TBPTTWindow, zero_states
from ssm_jax.training.measure import evaluate
from tests.bad_inputs import refuses
from tests.tasks.raw_sets import novels
from tests.training import tiny

LENGTH, ROWS = 8, 2
KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
STATES = (
    RNG.normal(size=(8, 3)).astype(np.float32),
    (np.ones((8, 2)) + 3j * RNG.normal(size=(8, 2))).astype(np.complex64),
)


def test_states_go_on_until_an_epoch_ends():
    start = StateInit("carry", epoch=3)
    for step in range(7):
        given = start(STATES, step=jnp.int32(step), key=KEY)
        zeros = jax.tree.map(np.zeros_like, STATES)
        chex.assert_trees_all_equal(given, STATES if step % 3 else zeros)
    chex.assert_trees_all_equal(StateInit()(STATES, step=0, key=KEY), STATES)


def test_fresh_start_has_no_states():
    assert StateInit("zero")(STATES, step=1, key=KEY) is None
    assert StateInit("carry")(None, step=1, key=KEY) is None


def test_states_of_others_are_those_of_the_row_before():
    given = StateInit("state_passing")(STATES, step=1, key=KEY)
    wanted = jax.tree.map(lambda leaf: np.roll(leaf, 1, axis=0), STATES)
    chex.assert_trees_all_equal(given, wanted)


def many(scale):
    """Rows enough to measure a deviation."""
    shapes = ((20_000, 1), (20_000, 1))
    real, imag = (np.full(shape, s) for shape, s in zip(shapes, scale, strict=True))
    return real.astype(np.float32), (1j * imag).astype(np.complex64)


@pytest.mark.full
@pytest.mark.parametrize(
    ("deviation", "wanted"), [(None, (0.5, 7.0)), (2.0, (2.0, 2.0))]
)
def test_noise_is_as_great_as_states_were_or_as_told(deviation, wanted):
    start = StateInit("noise", std=deviation)
    given = start(many((0.5, 7.0)), step=1, key=KEY)
    for leaf, size in zip(given, wanted, strict=True):
        assert np.sqrt(np.mean(np.abs(leaf) ** 2)) == pytest.approx(size, rel=0.03)
        assert abs(np.mean(leaf)) < 0.03 * size
    assert [leaf.dtype for leaf in given] == ["float32", "complex64"]
    other = start(many((0.5, 7.0)), step=1, key=jax.random.key(1))
    assert not np.allclose(given[0], other[0])


@pytest.mark.full
@pytest.mark.parametrize("kind", ["state_passing", "noise"])
def test_states_of_a_row_do_not_depend_on_the_number_of_devices(kind):
    start = StateInit(kind)

    @partial(jax.pmap, axis_name="data")
    def mapped(states):
        return start(states, step=1, key=KEY, axes=("data",))

    given = mapped(jax.tree.map(lambda leaf: leaf[:, None], STATES))
    given = jax.tree.map(lambda leaf: leaf[:, 0], given)
    wanted = start(STATES, step=1, key=KEY)
    chex.assert_trees_all_close(given, wanted, rtol=1e-6)
    for leaf, of in zip(given, STATES, strict=True):
        size = np.sqrt(np.mean(np.abs(of) ** 2, axis=0))
        assert np.all(np.abs(leaf) < 4 * size)
        assert len(np.unique(leaf)) == leaf.size


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    novels(folder, 5)
    return TextFolder(data_dir=str(folder), length=LENGTH)


@pytest.fixture(scope="module")
def start(task):
    """A run that learns nothing, so that all of its batches see the same model."""
    layer = RecurrentLayer(DLR(d_state=4), ChannelMixing())
    encoder = TokenEncoder(d_model=4, vocabulary=257)
    model = SequenceModel(encoder, Block(layer, prenorm=True), 1, head=None)
    run, state = create(model, task, Optimizer(learning_rate=0.1), seed=0)
    run = dataclasses.replace(run, transform=optax.set_to_zero())
    opt_state = run.transform.init(state.params)
    return run, state.replace(opt_state=opt_state)


def of_whole(start, task, split):
    """The loss of each batch, from one call on the sequences that they are cut from."""
    run, state = start
    count = n_batches(task, split, ROWS)
    batches = [task.batch(split, index, ROWS, seed=0) for index in range(count)]
    inputs, targets, mask = (
        np.concatenate(parts, axis=1)
        for parts in zip(*(batch[:3] for batch in batches), strict=True)
    )
    logits, _ = jax.jit(run.model.apply)({"params": state.params}, inputs)
    losses = [
        loss_sums("classification", logits[:, part], targets[:, part], mask[:, part])
        for part in (slice(i * LENGTH, (i + 1) * LENGTH) for i in range(count))
    ]
    return [float(sums["loss"].total) for sums in losses], mask.sum()


@pytest.mark.full
def test_carried_training_is_that_of_one_long_sequence_an_epoch(start, task):
    wanted, _ = of_whole(start, task, "train")
    run, state = start
    run = dataclasses.replace(run, state_init=StateInit("carry", epoch=len(wanted)))
    state = state.replace(carry=zero_states(run.model, ROWS))
    step = jax.jit(partial(train_step, run))
    losses = []
    for index in range(2 * len(wanted)):
        state, sums = step(state, task.batch("train", index, ROWS, seed=0))
        losses.append(float(sums["loss"].total))
    np.testing.assert_allclose(losses, 2 * wanted, rtol=1e-5)
    fresh = state.replace(carry=jax.tree.map(jnp.zeros_like, state.carry))
    _, sums = step(fresh, task.batch("train", 1, ROWS, seed=0))
    assert len(wanted) > 2
    assert abs(float(sums["loss"].total) - wanted[1]) > 1e-3 * wanted[1]


@pytest.mark.nightly
def test_run_that_is_stopped_knows_where_its_epoch_began(task, tmp_path, monkeypatch):
    """Nothing is learned, so each epoch has the losses of the first."""
    batch, stop = TextFolder.batch, 3

    def stopping(task, split, index, batch_size, seed):
        if (split, index) == ("train", stop):
            raise KeyboardInterrupt
        return batch(task, split, index, batch_size, seed)

    monkeypatch.setattr(TextFolder, "batch", stopping)
    config = tiny.shift(
        steps=5,
        batch_size=8,
        log_every=1,
        evaluate_every=2,
        initial_state="carry",
    )
    config.task = spec(TextFolder, **vars(task))
    encoder = spec(TokenEncoder, d_model=4, vocabulary=257)
    config.model.encoder, config.model.head = encoder, None
    config.optimizer = spec(Optimizer, learning_rate=1e-30, kind="sgd")
    with pytest.raises(KeyboardInterrupt):
        train(config, str(tmp_path))
    stop = None
    train(config, str(tmp_path))
    losses = [line["train/loss"] for line in WorkDir(tmp_path).metrics()]
    assert n_batches(task, "train", 8) == 2
    first, second = losses[:2]
    np.testing.assert_allclose(losses, [first, second, first, second, first], rtol=1e-6)
    # A second batch that started afresh would have another loss.
    config.training.initial_state = "zero"
    train(config, str(tmp_path / "zero"))
    afresh = WorkDir(tmp_path / "zero").metrics()[1]["train/loss"]
    assert abs(afresh - second) > 1e-4 * second


@pytest.mark.full
def test_evaluation_hands_its_states_on(start, task):
    wanted, n = of_whole(start, task, "validation")
    run, state = start
    parallel = DataParallel("pmap", jax.devices()[:ROWS])
    step = parallel.evaluation_step(run)

    def measured(carry):
        return evaluate(
            step,
            parallel,
            task,
            state.params,
            {},
            split="validation",
            batch_size=ROWS,
            limit=None,
            seed=0,
            carry=carry,
        )

    carried = measured(zero_states(run.model, ROWS))
    assert carried["loss"] == pytest.approx(sum(wanted) / n, rel=1e-5)
    assert carried["perplexity"] == pytest.approx(np.exp(sum(wanted) / n), rel=1e-4)
    assert measured(None)["loss"] != pytest.approx(sum(wanted) / n, rel=1e-3)


K = 3


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    """Batches of an epoch and two more, and what training makes of them.

    Nothing is learned; in place of the optimizer's state stands the last gradient.
    """
    folder = tmp_path_factory.mktemp("text")
    novels(folder, 4)
    task = TextFolder(data_dir=str(folder), length=LENGTH)
    layer = RecurrentLayer(DLR(d_state=4, dt_max=0.1), ChannelMixing())
    encoder = TokenEncoder(d_model=4, vocabulary=257)
    model = SequenceModel(encoder, Block(layer, prenorm=True), 1, head=None)
    run, state = create(model, task, Optimizer(learning_rate=0.1), seed=0)
    epoch = n_batches(task, "train", ROWS)
    assert epoch is not None and epoch > K

    def keep(updates, state, params=None):
        return jax.tree.map(jnp.zeros_like, updates), updates

    transform = optax.GradientTransformation(lambda params: params, keep)
    run = dataclasses.replace(
        run, transform=transform, state_init=StateInit(epoch=epoch)
    )
    batches = [task.batch("train", i, ROWS, seed=0) for i in range(epoch + 2)]
    state = state.replace(
        opt_state=transform.init(state.params),
        carry=TBPTTWindow.before(batches[0], zero_states(model, ROWS), K),
    )
    step, results = jax.jit(partial(train_step, run)), []
    for batch in batches:
        state, sums = step(state, batch)
        results.append((sums["loss"].total / sums["loss"].count, state.opt_state))
    return run.model, state.params, batches, results


def long_window(model, params, batches, last):
    """Loss of the last of some batches, and its gradient through ``last`` of them."""
    inputs = np.concatenate([batch.inputs for batch in batches], 1)
    border = inputs.shape[1] - last * LENGTH

    @jax.jit
    @jax.value_and_grad
    def loss(params):
        state = None
        if border:
            _, state = model.apply({"params": params}, inputs[:, :border])
            state = jax.lax.stop_gradient(state)
        logits, _ = model.apply({"params": params}, inputs[:, border:], state)
        loss = optax.softmax_cross_entropy_with_integer_labels(
            logits[:, -LENGTH:], batches[-1].targets
        )
        return jnp.mean(loss)

    return loss(params)


def close(result, expected):
    np.testing.assert_allclose(result[0], expected[0], rtol=1e-5)
    chex.assert_trees_all_close(result[1], expected[1], rtol=3e-5, atol=3e-6)


@pytest.mark.full
def test_gradient_of_several_windows_is_that_of_a_long_one(steps):
    model, params, batches, results = steps
    expected = long_window(model, params, batches[: K + 1], K)
    close(results[K], expected)
    # Through one window less the loss is the same, and its gradient is not.
    loss, shorter = long_window(model, params, batches[: K + 1], K - 1)
    np.testing.assert_allclose(loss, expected[0], rtol=1e-5)
    missing = optax.tree.norm(optax.tree.sub(expected[1], shorter))
    assert missing > 1e-3 * optax.tree.norm(expected[1])


@pytest.mark.full
def test_no_gradient_flows_past_the_beginning_of_an_epoch(steps):
    model, params, batches, results = steps
    expected = long_window(model, params, batches[:2], 2)
    for first in (0, len(batches) - 2):
        close(results[first + 1], expected)


def test_windows_want_states_that_go_on():
    for kind in ("zero", "noise", "state_passing"):
        with refuses("gradient_windows", 2, rule="1"):
            TrainConfig(steps=1, batch_size=1, initial_state=kind, gradient_windows=2)
