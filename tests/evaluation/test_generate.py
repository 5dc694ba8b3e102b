"""Generation: one token at a time is what the parallel model says."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ssm_jax.evaluation import Sampling, generate
from ssm_jax.layers import ChannelMixing, RecurrentLayer
from ssm_jax.models import Block, SequenceModel, StepHead, TokenEncoder
from ssm_jax.recurrences import DLR, GRU

VOCABULARY = 11
GREEDY = Sampling(temperature=0.0)
LOGITS = jnp.log(jnp.array([0.1, 0.4, 0.3, 0.2]))


@pytest.fixture(
    scope="module", params=[DLR(d_state=8), GRU(d_state=8)], ids=["dlr", "gru"]
)
def trained(request):
    """A model with weights large enough that its predictions differ, and they."""
    model = SequenceModel(
        encoder=TokenEncoder(d_model=8, vocabulary=VOCABULARY, deviation=1.0),
        block=Block(RecurrentLayer(request.param, ChannelMixing())),
        n_layers=1,
        head=StepHead(d_output=VOCABULARY),
    )
    variables = model.init(jax.random.key(0), jnp.zeros((1, 4), jnp.int32))
    return model, jax.tree.map(lambda leaf: 2 * leaf, variables)


def written(model, variables, prompts, n, **options):
    steps = generate(model, variables, prompts, **options)
    return np.stack([tokens for tokens, _ in itertools.islice(steps, n)], 1)


def test_greedy_text_is_what_the_model_predicts_of_it(trained):
    model, variables = trained
    prompts = [[3, 1, 4], [1, 5, 9, 2, 6], [5]]
    tokens = written(model, variables, prompts, 20, sampling=GREEDY)
    for prompt, own in zip(prompts, tokens, strict=True):
        whole = np.array([*prompt, *own])
        logits, _ = model.apply(variables, whole[None, :-1])
        np.testing.assert_array_equal(np.argmax(logits[0], -1)[len(prompt) - 1 :], own)
    assert len(set(tokens.ravel().tolist())) > 2


def test_rows_do_not_know_each_other(trained):
    model, variables = trained
    both = written(model, variables, [[3, 1, 4], [1, 5]], 12, seed=3)
    alone = written(model, variables, [[3, 1, 4]], 12, seed=3)
    np.testing.assert_array_equal(both[0], alone[0])


def test_a_text_goes_on_from_its_state(trained):
    model, variables = trained
    options = {"sampling": GREEDY}
    whole = written(model, variables, [[3, 1, 4]], 15, **options)
    steps = itertools.islice(generate(model, variables, [[3, 1, 4]], **options), 6)
    *_, (token, state) = steps
    rest = written(model, variables, [token.tolist()], 9, state=state, **options)
    np.testing.assert_array_equal(whole[:, 6:], rest)


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
    ],
)
def test_only_likely_tokens_are_drawn(sampling, kept):
    keys = jax.random.split(jax.random.key(0), 300)
    drawn = jax.jit(jax.vmap(lambda key: sampling.draw(key, LOGITS)))(keys)
    assert sorted(set(drawn.tolist())) == kept


def test_draws_are_as_likely_as_predicted():
    keys = jax.random.split(jax.random.key(0), 4000)
    sampling = Sampling(temperature=0.5)
    drawn = jax.jit(jax.vmap(lambda key: sampling.draw(key, LOGITS)))(keys)
    wanted = np.square([0.1, 0.4, 0.3, 0.2])
    found = np.bincount(drawn, minlength=4) / 4000
    np.testing.assert_allclose(found, wanted / wanted.sum(), atol=0.03)


@pytest.mark.parametrize(
    "values", [{"temperature": -1.0}, {"top_k": 0}, {"top_p": 0.0}, {"top_p": 1.5}]
)
def test_numbers_out_of_their_range_are_errors(values):
    (name,) = values
    with pytest.raises(ValueError, match=f"^`{name}` must be"):
        Sampling(**values)


def test_empty_prompt_is_an_error(trained):
    model, variables = trained
    with pytest.raises(ValueError, match="^`prompts` must each have a token"):
        next(generate(model, variables, [[1], []]))
