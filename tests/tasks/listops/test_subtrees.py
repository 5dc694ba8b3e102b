"""ListOps-SubTrees against a recursive evaluation of the text of its expressions."""

import random
from typing import NamedTuple

import numpy as np
import pytest
from scipy import stats

from ssm_jax import tasks
from ssm_jax.tasks.listops import expressions, listops, shapes, subtrees
from tests.bad_inputs import refuses
from tests.tiers import tiered

SPLITS = ("train", "validation", "test")
SMALL = {"min_length": 10, "max_length": 50, "max_depth": 5, "max_arguments": 6}
SIZES = {"n_train": 300, "n_validation": 300, "n_test": 300}
TASKS = {
    "small": tasks.ListOpsSubTrees(**SIZES, **SMALL, length=53),
    "binary": tasks.ListOpsSubTrees(
        **SIZES, min_length=4, max_length=20, length=20, max_depth=4, max_arguments=2
    ),
    "easy": tasks.ListOpsSubTrees(
        n_train=64, n_validation=64, n_test=64, min_length=1_500, max_length=2_000,
        length=2_048, max_depth=10, max_arguments=10,
    ),
    "published": tasks.ListOpsSubTrees(n_train=32, n_validation=32, n_test=32),
}  # fmt: skip
every_task = pytest.mark.parametrize(
    "task", tiered(TASKS, full=["small", "binary", "easy"])
)
NAMES = ("[MIN", "[MAX", "[MED", "[SM")


class Node(NamedTuple):
    """A subtree: where its bracket closes, its value and what is known of its shape."""

    end: int
    value: int
    height: int
    operator: str
    n_arguments: int


def apply(operator: str, values: list[int]) -> int:
    if operator == "[MIN":
        return min(values)
    if operator == "[MAX":
        return max(values)
    if operator == "[SM":
        return sum(values) % 10
    ordered, half = sorted(values), len(values) // 2
    if len(values) % 2:
        return ordered[half]
    return int((ordered[half - 1] + ordered[half]) / 2)


def parse(words: list[str], start: int = 0) -> tuple[Node, list[Node]]:
    """The node that begins at a word, and all nodes with a bracket up to its end."""
    if words[start] not in NAMES:
        return Node(start, int(words[start]), 0, "", 0), []
    arguments, nodes, i = [], [], start + 1
    while words[i] != "]":
        argument, inside = parse(words, i)
        arguments.append(argument)
        nodes += inside
        i = argument.end + 1
    value = apply(words[start], [argument.value for argument in arguments])
    height = 1 + max(argument.height for argument in arguments)
    node = Node(i, value, height, words[start], len(arguments))
    return node, [*nodes, node]


def words_of(row: np.ndarray) -> list[str]:
    return listops.decode(row).split()


def whole(task: tasks.ListOpsSubTrees, split) -> tasks.Batch:
    return task.batch(split, 0, task.n_examples(split), seed=0)


@every_task
@pytest.mark.parametrize("split", tiered(SPLITS))
def test_targets_heights_and_operators_are_those_of_the_text(task, split):
    batch = whole(task, split)
    heights, operators = (
        function(batch.inputs) for function in (subtrees.heights, subtrees.operators)
    )
    expected = np.zeros((4, *batch.inputs.shape), int)
    for i, row in enumerate(batch.inputs):
        words = words_of(row)
        root, nodes = parse(words)
        assert root.end + 1 == len(words) == batch.mask[i].sum()
        assert task.min_length <= len(words) <= task.max_length
        assert root.height + 1 <= task.max_depth
        assert {2 <= n.n_arguments <= task.max_arguments for n in nodes} == {True}
        for node in nodes:
            operator = 11 + NAMES.index(node.operator)
            expected[:, i, node.end] = (node.value, node.height, operator, True)
    np.testing.assert_array_equal(batch.targets, expected[0])
    np.testing.assert_array_equal(heights, expected[1])
    np.testing.assert_array_equal(operators, expected[2])
    np.testing.assert_array_equal(batch.loss_mask, expected[3].astype(bool))
    np.testing.assert_array_equal(batch.mask, batch.inputs != 0)
    assert (np.diff(batch.mask.astype(int), axis=1) <= 0).all()


@pytest.mark.parametrize("function", [subtrees.heights, subtrees.operators])
@pytest.mark.parametrize(
    "row", [[11, 1, 1, 0], [15, 11, 1, 15], [11, 1, 15, 15], [1, 15, 11, 1]]
)
def test_unbalanced_brackets_are_an_error(function, row):
    with refuses("tokens", "row 1", rule="balanced"):
        function(np.array([[11, 1, 1, 15], row]))


@pytest.mark.parametrize("draw_shapes", [shapes.draw_shapes, shapes.draw_long_shapes])
def test_draws_without_a_tree_within_the_bounds_are_repeated(draw_shapes):
    n_drawn = []

    def counted(rng, bounds, n):
        levels = draw_shapes(rng, bounds, n)
        n_drawn.append(len(levels[0].tree))
        return levels

    bounds = shapes.Bounds(200, 201, max_depth=10, max_arguments=10)
    rows, values = expressions.draw(
        np.random.default_rng(0), 3, bounds, [0], shapes=counted
    )
    assert sum(n_drawn) == 3 and 0 in n_drawn
    for row, value in zip(rows, values, strict=True):
        words = words_of(row)
        assert len(words) in (200, 201) and parse(words)[0].value == value
        assert expressions.part_of(row) == 0


def sample(rng: random.Random, depth: int, bounds: dict[str, int]) -> list[str]:
    """Draws a tree by the definition, one node at a time."""
    if depth == bounds["max_depth"] or rng.random() >= 0.25:
        return [str(rng.randrange(10))]
    words = [rng.choice(NAMES)]
    for _ in range(rng.randint(2, bounds["max_arguments"])):
        words += sample(rng, depth + 1, bounds)
    return [*words, "]"]


@pytest.mark.full
def test_drawn_as_the_definition_says():
    rng = random.Random(0)
    expected: list[list[str]] = []
    while len(expected) < 3_000:
        words = sample(rng, 1, SMALL)
        if 10 <= len(words) <= 50:
            expected.append(words)
    task = tasks.ListOpsSubTrees(n_test=3_000, **SMALL)
    drawn = [words_of(row) for row in whole(task, "test").inputs]
    # As for ListOps: samples of one distribution pass but once in a thousand times.
    nodes = [[parse(words)[1] for words in trees] for trees in (expected, drawn)]
    measures = {
        "length": lambda nodes: nodes[-1].end,
        "height": lambda nodes: nodes[-1].height,
        "value": lambda nodes: nodes[-1].value,
        "first": lambda nodes: nodes[0].end,
    }
    for what in measures.values():
        values = [np.array([*map(what, trees)]) for trees in nodes]
        assert stats.ks_2samp(*values).pvalue > 1e-3
    for what in ("height", "operator", "n_arguments", "value"):
        counts = [[getattr(n, what) for tree in trees for n in tree] for trees in nodes]
        kinds = sorted({*counts[0], *counts[1]})
        table = [[trees.count(kind) for kind in kinds] for trees in counts]
        assert stats.chi2_contingency(table).pvalue > 1e-3, what


def length_distribution(bounds: shapes.Bounds) -> np.ndarray:
    """Probability of each length up to the maximum, by the number of levels."""
    n = bounds.max_length + 1
    p = np.zeros(n)
    p[1] = 1.0
    for _ in range(bounds.max_depth - 1):
        arguments, total = p, np.zeros(n)
        for _ in range(2, bounds.max_arguments + 1):
            arguments = np.convolve(arguments, p)[:n]
            total += arguments / (bounds.max_arguments - 1)
        p = np.zeros(n)
        p[1] = 0.75
        p[3:] = 0.25 * total[1:-2]
    return p


@pytest.mark.full
@pytest.mark.parametrize("draw", [shapes.draw_shapes, shapes.draw_long_shapes])
def test_lengths_have_their_exact_distribution(draw):
    bounds = shapes.Bounds(100, 140, 8, 7)
    rng, lengths = np.random.default_rng(0), []
    while len(lengths) < 4_000:
        tokens, _ = expressions.draw(rng, 500, bounds, shapes=draw)
        lengths += (tokens > 0).sum(axis=1).tolist()
    p = length_distribution(bounds)[100:]
    counts = np.bincount(np.array(lengths) - 100, minlength=41)
    expected = len(lengths) * p / p.sum()
    assert stats.chisquare(counts, expected).pvalue > 1e-3


@pytest.mark.full
def test_published_lengths_and_frequencies():
    task = tasks.ListOpsSubTrees(n_validation=1_000)
    batch = whole(task, "validation")
    lengths = batch.mask.sum(axis=1)
    # Published of 2,000 expressions: mean 7,548 and median 7,529; the standard error
    # of the mean of 1,000 is 11.
    assert abs(lengths.mean() - 7_548) < 40 and abs(np.median(lengths) - 7_529) < 60
    operators = subtrees.operators(batch.inputs)[batch.loss_mask]
    assert stats.chisquare(np.bincount(operators - 11)).pvalue > 1e-3
    digits = batch.inputs[(0 < batch.inputs) & (batch.inputs < 11)]
    assert stats.chisquare(np.bincount(digits - 1)).pvalue > 1e-3


@pytest.mark.full
def test_no_two_expressions_have_the_same_brackets():
    batches = [whole(TASKS["published"], split) for split in SPLITS]
    inputs = np.concatenate([batch.inputs for batch in batches])
    templates = np.where((0 < inputs) & (inputs < 11), 1, inputs)
    assert len(np.unique(templates, axis=0)) == len(templates)


@pytest.mark.full
def test_splits_share_no_expression_where_most_are_drawn():
    bounds = {"min_length": 4, "max_length": 5, "max_depth": 2, "max_arguments": 3}
    task = tasks.ListOpsSubTrees(
        n_train=20_000, n_validation=2_000, n_test=2_000, length=5, **bounds
    )
    rows = {s: {row.tobytes() for row in whole(task, s).inputs} for s in SPLITS}
    assert sum(map(len, rows.values())) == len(set().union(*rows.values()))
    # Of 4,400 expressions, eight tenths and one tenth.
    assert len(rows["train"]) > 3_000 and len(rows["test"]) > 350


def test_defaults_are_published():
    assert tasks.ListOpsSubTrees() == tasks.ListOpsSubTrees(
        n_train=96_000,
        n_validation=2_000,
        n_test=2_000,
        min_length=7_001,
        max_length=8_179,
        length=8_192,
        max_depth=15,
        max_arguments=9,
    )


BAD_FIELDS = {
    "n_train": ({"n_train": 0}, "at least 1", 0),
    "min_length": ({"min_length": 3}, "at least 4", 3),
    "length": ({"length": 8_178}, "8179", 8_178),
    "min_length` and `max_length": ({"max_depth": 3}, "7001", 8_179),
    "max_length": ({"max_length": 8_179.0}, "integer", 8_179.0),
}


@pytest.mark.parametrize("name", BAD_FIELDS)
def test_bad_field_is_an_error_of_one_line(name, unchecked):
    fields, rule, value = BAD_FIELDS[name]
    with refuses(name, value, rule=rule):
        tasks.ListOpsSubTrees(**fields)
