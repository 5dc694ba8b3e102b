"""ListOps against a parser of its grammar and a direct sampler of its definition."""

import random

import numpy as np
import pytest
from scipy import stats

from ssm_jax import tasks
from ssm_jax.tasks.listops import expressions, listops
from tests.bad_inputs import refuses
from tests.tasks.listops.test_subtrees import NAMES, parse, sample, whole, words_of

SPLITS = ("train", "validation", "test")
SMALL = {"min_length": 10, "max_length": 50, "max_depth": 5, "max_arguments": 6}
SIZES = {"n_train": 500, "n_validation": 500, "n_test": 500}
TASKS = {
    "arena": tasks.ListOps(n_train=64, n_validation=64, n_test=64),
    "small": tasks.ListOps(**SIZES, **SMALL),
    "binary": tasks.ListOps(
        **SIZES, min_length=1, max_length=20, max_depth=4, max_arguments=2
    ),
    "digits": tasks.ListOps(**SIZES, min_length=1, max_length=1),
}
every_task = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS.keys())


@every_task
@pytest.mark.parametrize("split", SPLITS)
def test_target_is_the_value_of_one_whole_expression_within_bounds(task, split):
    batch = whole(task, split)
    for tokens, target in zip(batch.inputs, batch.targets, strict=True):
        words = words_of(tokens)
        assert task.min_length <= len(words) <= task.max_length
        root, nodes = parse(words)
        assert root.end + 1 == len(words) and root.value == target
        assert root.height < task.max_depth
        assert all(2 <= node.n_arguments <= task.max_arguments for node in nodes)


def test_bounds_are_reached():
    drawn = [words_of(row) for row in whole(TASKS["small"], "test").inputs]
    assert {min(map(len, drawn)), max(map(len, drawn))} == {10, 50}
    nodes = [node for words in drawn for node in parse(words)[1]]
    assert max(node.height for node in nodes) + 1 == 5
    assert {node.n_arguments for node in nodes} == {2, 3, 4, 5, 6}


@every_task
def test_valid_steps_are_the_tokens_and_left_aligned(task):
    batch = whole(task, "test")
    np.testing.assert_array_equal(batch.mask, batch.inputs != 0)
    assert (np.diff(batch.mask.astype(int), axis=1) <= 0).all()


@pytest.mark.full
def test_drawn_as_the_definition_says():
    rng = random.Random(0)
    expected: list[list[str]] = []
    while len(expected) < 3_000:
        words = sample(rng, 1, SMALL)
        if 10 <= len(words) <= 50:
            expected.append(words)
    task = tasks.ListOps(n_test=3_000, **SMALL)
    drawn = [words_of(row) for row in whole(task, "test").inputs]
    # Samples of one distribution fall below one in a thousand once in a thousand
    # tries, and here they are always the same two. P(operator) = 0.3 gives 1e-15.
    for what in (len, lambda w: parse(w)[0].height, lambda w: parse(w)[0].value):
        values = [
            np.array([what(words) for words in texts]) for texts in (expected, drawn)
        ]
        assert stats.ks_2samp(*values).pvalue > 1e-3
    names = [*NAMES, *"0123456789"]
    counts = [
        [sum(words.count(name) for words in texts) for name in names]
        for texts in (expected, drawn)
    ]
    assert stats.chi2_contingency(counts).pvalue > 1e-3


def test_each_split_has_expressions_of_every_shape():
    digits = np.arange(1, 11)
    rows_by_split = {split: [] for split in SPLITS}
    split_of_part = {
        part: split for split, parts in listops.PARTS.items() for part in parts
    }
    for prefix in ([], [11, 3], [14, 12, 5, 5, 15]):
        for digit in digits:
            suffix = [15] if prefix else []
            row = np.array([*prefix, digit, *suffix, 0, 0], np.uint8)
            rows_by_split[split_of_part[expressions.part_of(row)]].append(row)
    assert {split: len(rows) for split, rows in rows_by_split.items()} == {
        "train": 24, "validation": 3, "test": 3
    }  # fmt: skip


@pytest.mark.full
def test_last_digits_of_a_split_are_equally_likely():
    task = tasks.ListOps(n_train=5_000, n_test=5_000, **SMALL)
    for split in ("train", "test"):
        rows = task.batch(split, 0, 5_000, seed=0).inputs
        last = [listops.decode(row).rstrip(" ]").split()[-1] for row in rows]
        counts = np.bincount(np.array(last, int), minlength=10)
        assert stats.chisquare(counts).pvalue > 1e-3


def test_lengths_are_those_of_the_arena():
    lengths = whole(tasks.ListOps(), "validation").mask.sum(axis=1)
    # The published validation split, of 2,000 too, has the median 960; the standard
    # error of either is 11.
    assert abs(np.median(lengths) - 960) < 40


def test_example_depends_on_neither_the_size_of_its_split_nor_on_earlier_requests():
    bounds = SMALL | {"max_length": 49}
    few = tasks.ListOps(n_test=70, **bounds)
    many = tasks.ListOps(n_test=700, n_train=5, **bounds)
    last = many.batch("test", 9, 70, seed=0)
    first = many.batch("test", 0, 70, seed=0)
    np.testing.assert_array_equal(first.inputs, whole(few, "test").inputs)
    np.testing.assert_array_equal(first.targets, whole(few, "test").targets)
    np.testing.assert_array_equal(last.inputs, whole(many, "test").inputs[-70:])


@pytest.mark.full
def test_examples_are_the_same_in_every_process(run_python):
    program = (
        "from ssm_jax import tasks; import hashlib;"
        f"task = tasks.ListOps(n_test=500, **{SMALL});"
        "inputs = task.batch('test', 0, 500, seed=0).inputs;"
        "print(hashlib.sha256(inputs.tobytes()).hexdigest())"
    )
    import hashlib

    inputs = whole(TASKS["small"], "test").inputs
    assert run_python(program) == hashlib.sha256(inputs.tobytes()).hexdigest()


def test_defaults_are_those_of_the_arena():
    assert tasks.ListOps() == tasks.ListOps(
        n_train=96_000,
        n_validation=2_000,
        n_test=2_000,
        min_length=500,
        max_length=2_000,
        max_depth=10,
        max_arguments=10,
    )


BAD_FIELDS = {
    "n_train": ({"n_train": 0}, "at least 1", 0),
    "n_validation": ({"n_validation": -1}, "at least 1", -1),
    "n_test": ({"n_test": 0}, "at least 1", 0),
    "max_depth": ({"max_depth": 1}, "at least 2", 1),
    "max_arguments": ({"max_arguments": 1}, "at least 2", 1),
    "min_length": ({"min_length": 0}, "2000", 0),
    "min_length` and `max_length": (
        {"max_depth": 3, "max_arguments": 3, "min_length": 50, "max_length": 60},
        "50",
        60,
    ),
}


@pytest.mark.parametrize("name", BAD_FIELDS)
def test_bad_field_is_an_error_of_one_line(name):
    fields, rule, value = BAD_FIELDS[name]
    with refuses(name, value, rule=rule):
        tasks.ListOps(**fields)
