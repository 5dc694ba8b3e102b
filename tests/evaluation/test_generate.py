"""Generation against the model evaluated in parallel."""

import dataclasses
import importlib
import itertools
import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from ssm_jax.evaluation import GenerationState, Sampling, generate
from ssm_jax.evaluation.generate import decode_step
from ssm_jax.layers import (
    Attention,
    ChannelMixing,
    Mamba,
    Recurrent,
    RecurrentLayer,
    RotaryAttention,
)
from ssm_jax.models import (
    Block,
    PositionalEmbedding,
    SequenceModel,
    StepHead,
    TokenEncoder,
)
from ssm_jax.models.decoding import can_decode
from ssm_jax.recurrences import DLR, GRU, LSTM, S5, SGConv
from tests.bad_inputs import refuses
from tests.tiers import tiered

VOCABULARY = 11
GREEDY = Sampling(temperature=0.0)
LAYER = RecurrentLayer(GRU(d_state=8), ChannelMixing())
LOGITS = jnp.log(jnp.array([0.1, 0.4, 0.3, 0.2]))


TRAINED = {
    "gru": (LAYER,),
    "dlr": (RecurrentLayer(DLR(d_state=8), ChannelMixing()),),
    "hybrid": (LAYER, RotaryAttention(n_heads=2, window=3)),
}


@pytest.fixture(scope="module", params=tiered(TRAINED, full=("gru", "hybrid")))
def trained(request):
    """A model and variables large enough for distinct predictions."""
    return with_variables(model_of(*request.param))


def model_of(*layers, **fields):
    blocks = tuple(Block(layer) for layer in layers)
    return SequenceModel(
        encoder=TokenEncoder(d_model=8, vocabulary=VOCABULARY, std=1.0),
        block=blocks[0] if len(blocks) == 1 else blocks,
        n_layers=len(blocks),
        **{"head": StepHead(d_output=VOCABULARY)} | fields,
    )


def with_variables(model):
    variables = jax.jit(model.init)(jax.random.key(0), jnp.zeros((1, 4), jnp.int32))
    return model, jax.tree.map(lambda leaf: 2 * leaf, variables)


def generate_tokens(model, variables, prompts, n, **options):
    steps = generate(model, variables, prompts, **options)
    return np.stack([step.tokens for step in itertools.islice(steps, n)], 1)


@pytest.mark.full
def test_greedy_text_is_the_argmax_of_the_parallel_model(trained):
    model, variables = trained
    prompts = [[3, 1, 4], [1, 5, 9, 2, 6], [5]]
    tokens = generate_tokens(model, variables, prompts, 20, sampling=GREEDY)
    apply = jax.jit(model.apply)
    for prompt, continuation in zip(prompts, tokens, strict=True):
        whole = np.array([*prompt, *continuation])
        logits, _ = apply(variables, whole[None, :-1])
        np.testing.assert_array_equal(
            np.argmax(logits[0], -1)[len(prompt) - 1 :], continuation
        )
    assert len(set(tokens.ravel().tolist())) > 2


@pytest.mark.full
def test_rows_are_independent(trained):
    model, variables = trained
    both = generate_tokens(model, variables, [[3, 1, 4], [1, 5]], 12, seed=3)
    alone = generate_tokens(model, variables, [[3, 1, 4]], 12, seed=3)
    np.testing.assert_array_equal(both[0], alone[0])


@pytest.mark.parametrize("sampling", tiered([GREEDY, Sampling(top_k=5)], 0))
def test_text_does_not_depend_on_the_block_size(trained, sampling):
    model, variables = trained
    options = {"sampling": sampling, "seed": 5}
    by_token, *by_block = (
        generate_tokens(model, variables, [[3, 1], [5]], 13, block_size=size, **options)
        for size in (1, 4, 12)
    )
    for text in by_block:
        np.testing.assert_array_equal(text, by_token)


# Blocks that are sampled in advance, and those that are not.
@pytest.mark.full
@pytest.mark.parametrize("seconds", [0, math.inf])
def test_state_within_a_block_is_that_of_single_tokens(trained, seconds, monkeypatch):
    module = importlib.import_module("ssm_jax.evaluation.generate")
    monkeypatch.setattr(module, "_AHEAD_S", seconds)
    model, variables = trained
    by_token, by_block = (
        itertools.islice(generate(model, variables, [[3, 1], [5]], block_size=size), 11)
        for size in (1, 4)
    )
    for single, blocked in zip(by_token, by_block, strict=True):
        assert single.n_drawn == blocked.n_drawn
        np.testing.assert_array_equal(single.tokens, blocked.tokens)
        chex.assert_trees_all_close(single.state, blocked.state, rtol=1e-5, atol=1e-6)


@pytest.mark.full
def test_generation_continues_from_a_file(trained, tmp_path):
    model, variables = trained
    prompts, options = [[3, 1, 4], [5]], {"seed": 2}
    whole = generate_tokens(model, variables, prompts, 15, **options)
    options["block_size"] = 4
    steps = list(itertools.islice(generate(model, variables, prompts, **options), 9))
    # The first token, tokens within a block, and the last ones of blocks.
    for n in (1, 3, 5, 8, 9):
        steps[n - 1].save(tmp_path / "state")
        before = GenerationState.load(tmp_path / "state", model)
        continued = options | {"state": before.state, "n_drawn": before.n_drawn}
        heads = before.tokens[:, None].tolist()
        rest = generate_tokens(model, variables, heads, 15 - n, **continued)
        np.testing.assert_array_equal(whole[:, n:], rest)


def test_file_of_another_model_is_rejected(trained, tmp_path, unchecked):
    model, variables = trained
    next(generate(model, variables, [[1]])).save(tmp_path / "state")
    (tmp_path / "text").write_text("It was the best of times")
    lstm = model.clone(block=Block(RecurrentLayer(LSTM(d_state=8), ChannelMixing())))
    others = (("state", lstm), ("state", model.clone(n_layers=3)), ("text", model))
    for name, other in others:
        with refuses("path"):
            GenerationState.load(tmp_path / name, other)
    saved = GenerationState.load(tmp_path / "state", model)
    for tokens in (np.float32([1.5]), np.int32([[1]])):
        dataclasses.replace(saved, tokens=tokens).save(tmp_path / "changed")
        with refuses("path", tokens.dtype):
            GenerationState.load(tmp_path / "changed", model)


@pytest.mark.parametrize(
    ("sampling", "kept"),
    [
        (Sampling(), [0, 1, 2, 3]),
        (Sampling(top_k=2), [1, 2]),
        (Sampling(top_k=9), [0, 1, 2, 3]),
        (Sampling(top_p=0.3), [1]),
        (Sampling(top_p=0.5), [1, 2]),
        (Sampling(top_p=0.95), [0, 1, 2, 3]),
        (Sampling(top_k=3, top_p=0.5), [1, 2]),
        # The nucleus is that of the tempered probabilities 0.03, 0.53, 0.3 and 0.13.
        (Sampling(temperature=0.5, top_p=0.5), [1]),
    ],
)
def test_only_likely_tokens_are_sampled(sampling, kept):
    keys = jax.random.split(jax.random.key(0), 300)
    drawn = jax.jit(jax.vmap(lambda key: sampling.draw(key, LOGITS)))(keys)
    assert sorted(set(drawn.tolist())) == kept


def test_sample_frequencies_match_the_probabilities():
    keys = jax.random.split(jax.random.key(0), 4000)
    sampling = Sampling(temperature=0.5)
    drawn = jax.jit(jax.vmap(lambda key: sampling.draw(key, LOGITS)))(keys)
    expected = np.square([0.1, 0.4, 0.3, 0.2])
    frequencies = np.bincount(drawn, minlength=4) / 4000
    np.testing.assert_allclose(frequencies, expected / expected.sum(), atol=0.03)


@pytest.mark.parametrize(
    "values", [{"temperature": -1.0}, {"top_k": 0}, {"top_p": 0.0}, {"top_p": 1.5}]
)
def test_arguments_out_of_range_are_rejected(values):
    ((name, value),) = values.items()
    with refuses(name, value):
        Sampling(**values)


def test_empty_prompt_is_rejected(trained):
    model, variables = trained
    with refuses("prompts", rule="token"):
        next(generate(model, variables, [[1], []]))


@pytest.mark.parametrize("token", [-1, VOCABULARY, 2**40])
@pytest.mark.parametrize("head", [None, StepHead(d_output=VOCABULARY)], ids=str)
def test_prompt_beyond_the_vocabulary_is_refused(token, head):
    model, variables = with_variables(model_of(LAYER, head=head))
    with refuses("prompts[1]", token, rule=f"from 0 to {VOCABULARY - 1}"):
        next(generate(model, variables, [[0, VOCABULARY - 1], [1, token, 2]]))


def test_bound_of_a_model_without_vocabulary_is_that_of_its_predictions():
    model, variables = with_variables(model_of(LAYER))
    model = _OwnModel(model)
    own_variables = {"params": {"model": variables["params"]}}
    assert len(next(generate(model, own_variables, [[VOCABULARY - 1]])).tokens) == 1
    with refuses("prompts[0]", VOCABULARY, rule=f"from 0 to {VOCABULARY - 1}"):
        next(generate(model, own_variables, [[VOCABULARY]]))


class _OwnModel(nn.Module):
    model: nn.Module

    def initial_state(self, shape):
        return self.model.initial_state(shape)

    def __call__(self, tokens, state=None, **flags):
        return self.model(tokens, state, **flags)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("prompt", [[0.5], [True], [[1]], "a"])
def test_prompt_that_is_no_tokens_is_refused(trained, prompt):
    with refuses("prompts[0]", rule="integers"):
        next(generate(*trained, [prompt]))


def test_head_of_more_tokens_than_the_encoder_is_refused():
    model, variables = with_variables(
        model_of(LAYER, head=StepHead(d_output=VOCABULARY + 1))
    )
    with refuses("model", VOCABULARY + 1, rule=f"vocabulary of {VOCABULARY}"):
        next(generate(model, variables, [[1]]))


@pytest.mark.parametrize("sampling", tiered([GREEDY, Sampling()]))
def test_logits_that_are_nan_are_no_token(trained, sampling):
    model, variables = trained
    first = next(generate(model, variables, [[1], [2]], sampling=sampling))
    state = jax.tree.map(lambda leaf: leaf.at[1].set(jnp.nan), first.state)
    prompts = first.tokens[:, None].tolist()
    with refuses("variables", "row 1", rule="finite"):
        next(generate(model, variables, prompts, state=state, sampling=sampling))
    spoilt = jax.tree.map(lambda leaf: leaf * jnp.nan, variables)
    with refuses("variables", "row 0", rule="finite"):
        next(generate(model, spoilt, [[1]], sampling=sampling))


def test_compiled_step_of_a_token_out_of_range_is_nan(trained):
    model, variables = trained
    tokens = jnp.array([1, -1, VOCABULARY])
    logits, _ = decode_step(model, variables, tokens, model.initial_state((3,)))
    assert np.isfinite(logits).all(1).tolist() == [True, False, False]


def test_block_size_must_be_positive(trained):
    model, variables = trained
    with refuses("block_size", 0):
        next(generate(model, variables, [[1]], block_size=0))


@pytest.mark.parametrize(
    "layer",
    tiered(
        {
            "windows": RotaryAttention(n_heads=2, window=2),
            "linear": Attention(n_heads=2, kind="linear"),
            "mamba": Mamba(),
            "one_tap": Recurrent(SGConv(length=1, d_state=1)),
        },
        ["one_tap"],
        full=["one_tap", "windows"],
    ),
)
def test_layers_with_states_decode(layer):
    model, variables = with_variables(model_of(layer))
    prompt, apply = [3, 1, 4, 1, 5], jax.jit(model.apply)
    ((first, second),) = generate_tokens(model, variables, [prompt], 2, sampling=GREEDY)
    logits, _ = apply(variables, jnp.array([[*prompt, first]]))
    assert np.argmax(logits[0], -1)[-2:].tolist() == [first, second]


class Hybrid(nn.Module):
    """The states of a model of its own, whose second layer has none."""

    def initial_state(self, batch_shape):
        return jnp.zeros((*batch_shape, 4)), None


FORGETS = {
    "softmax": (model_of(Attention(n_heads=2)), "[0]"),
    "rotary": (model_of(Attention(n_heads=2, kind="rotary")), "[0]"),
    "no_window": (model_of(RotaryAttention(n_heads=2)), "[0]"),
    "bidirectional": (
        model_of(Recurrent(S5(d_state=4, blocks=1, bidirectional=True))),
        "[0]",
    ),
    "within_a_layer": (
        model_of(Mamba(recurrence=S5(d_state=4, blocks=1, bidirectional=True))),
        "[0][1]",
    ),
    "hybrid": (Hybrid(), "[1]"),
    "positions": (
        model_of(
            Recurrent(DLR(d_state=4)), positions=PositionalEmbedding(max_length=9)
        ),
        "positions",
    ),
}


@pytest.mark.parametrize(("model", "value"), FORGETS.values(), ids=FORGETS)
def test_a_model_that_forgets_the_text_is_refused(model, value):
    assert not can_decode(model)
    with refuses("model", value):
        next(generate(model, {}, [[1, 2]]))
    with refuses("model", value):
        decode_step(model, {}, jnp.array([1]), None)
