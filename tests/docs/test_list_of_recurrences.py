"""The list of recurrences says what the classes are and do."""

import inspect
import re
from pathlib import Path
from typing import get_args

import jax
import jax.numpy as jnp
import pytest

from ssm_jax import recurrences
from ssm_jax.types import Method

PAGE = (Path(__file__).parents[2] / "docs/list_of_recurrences.md").read_text()
METHODS = [method for method in get_args(Method) if method != "auto"]

# The letters of the page, with a value for each, and a recurrence of these sizes.
# Widths that consist of parts of these sizes; that of the others is `d`.
WIDTHS = {
    "SSD": 2 * 5 + 2 * 6 + 2,
    "GatedDeltaRule": 2 * 2 * 3 + 2 * (5 + 2),
    "TrapezoidalSSD": 2 * (5 + 3) + 2 * 6 + 3,
    "MLSTM": 2 * (2 * 3 + 5 + 2),
}
SIZES = {"d": 4, "n": 6, "h": 2, "k": 3, "m": 3, "p": 5, "L": 7}
SUMS = {"d_statistic": 5, "d_feedback": 3, "d_output": 2}
RECURRENCES = [
    recurrences.DLR(d_state=6),
    recurrences.DSS(d_state=6),
    recurrences.S4(d_state=6),
    recurrences.S4D(d_state=6),
    recurrences.S5(d_state=6, blocks=1),
    recurrences.LRU(d_state=6),
    recurrences.LinOSS(d_state=6),
    recurrences.CES(),
    recurrences.ExponentialSmoothing(),
    recurrences.DampedEMA(d_state=6),
    recurrences.SelectiveSSM(d_state=6),
    recurrences.GatedLinearAttention(n_heads=2, d_key=3),
    recurrences.SSD(d_head=5, d_state=6),
    recurrences.Retention(n_heads=2),
    recurrences.GatedDeltaRule(n_heads=2, d_key=3, d_value=5),
    recurrences.TrapezoidalSSD(d_head=5, d_state=6, n_angles=3),
    recurrences.MLSTM(d_head=5, d_key=3),
    recurrences.SRU(scales=(0.0, 0.5, 0.9), **SUMS),
    recurrences.FRU(frequencies=(0.0, 1.0, 2.0), horizon=8, **SUMS),
    recurrences.RNN(d_state=6),
    recurrences.GRU(d_state=6),
    recurrences.LSTM(d_state=6),
    recurrences.RGLRU(n_heads=2),
    recurrences.DiagonalRNN(d_state=6),
    recurrences.MinGRU(d_state=6),
    recurrences.MinLSTM(d_state=6),
    recurrences.SGConv(d_state=3, length=7),
    recurrences.BoundedEigenvalues(
        recurrence=recurrences.LRU(d_state=6), largest_state=2.0
    ),
]
each_recurrence = pytest.mark.parametrize(
    "recurrence", RECURRENCES, ids=lambda recurrence: type(recurrence).__name__
)


def width_of(recurrence):
    """The width of its inputs."""
    return WIDTHS.get(type(recurrence).__name__, SIZES["d"])


def rows():
    """The cells of the table by the name of the class."""
    lines = [line for line in PAGE.splitlines() if line.startswith("| {py:obj}")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    names = [re.search(r"<ssm_jax\.recurrences\.(\w+)>", row[0])[1] for row in cells]
    return dict(zip(names, cells, strict=True))


ROWS = rows()
GUIDE = (Path(__file__).parents[2] / "docs/which_recurrence.md").read_text()


def test_every_recurrence_has_a_row():
    public = [getattr(recurrences, name) for name in recurrences.__all__]
    evaluated = {
        cls.__name__
        for cls in public
        if inspect.isclass(cls)
        and {"init", "apply", "initial_state"} <= set(dir(cls))
        and not inspect.isabstract(cls)
        and not getattr(cls, "_is_protocol", False)
    }
    assert set(ROWS) == evaluated
    assert {type(recurrence).__name__ for recurrence in RECURRENCES} == evaluated


@each_recurrence
def test_file_is_that_of_the_class(recurrence):
    module = type(recurrence).__module__
    file = ROWS[type(recurrence).__name__][3].strip("`")
    assert module == f"ssm_jax.recurrences.{file.removesuffix('.py')}"


@each_recurrence
def test_paper_is_that_of_the_docstring(recurrence):
    year, place, link = re.fullmatch(
        r"(\d{4}), \[(.*)\]\((.*)\)", ROWS[type(recurrence).__name__][1]
    ).groups()
    references = " ".join(
        inspect.getdoc(type(recurrence)).split("References:")[1].split()
    )
    cited = references[references.index(f"<{link}>`_") :]
    assert cited.startswith(f"<{link}>`_, {year}")
    assert place in references


@each_recurrence
def test_state_is_that_of_the_recurrence(recurrence):
    cell = ROWS[type(recurrence).__name__][5]
    if cell == "of the other":
        recurrence = recurrence.recurrence
        cell = ROWS[type(recurrence).__name__][5]
    shape, kind = re.fullmatch(r"`(\(.*\))` (real|complex)", cell).groups()
    width = width_of(recurrence)
    state = jax.eval_shape(lambda: recurrence.initial_state((), width))
    assert state.shape == eval(re.sub(r"(?<=\w) (?=\w)", " * ", shape), SIZES.copy())
    assert jnp.iscomplexobj(state) == (kind == "complex")


def test_guide_has_the_products_and_methods_of_the_list():
    table = GUIDE.split("## Costs")[1].split("\n\n- ")[0]
    cells = [line.strip("|").split(" | ") for line in table.splitlines()]
    guide = {
        name: (row[4].strip(" |"), row[3])
        for row in cells
        if len(row) == 5
        for name in re.findall(r"`(\w+)`", row[1])
    }
    assert len(guide) > 15
    assert guide == {name: (ROWS[name][4], ROWS[name][6]) for name in guide}


@pytest.mark.full
@each_recurrence
def test_methods_are_those_that_are_not_refused(recurrence):
    listed = re.findall(r"`(\w+)`", ROWS[type(recurrence).__name__][4]) or METHODS
    key, width = jax.random.key(0), width_of(recurrence)
    params = jax.eval_shape(lambda: recurrence.init(key, width))
    x = jax.ShapeDtypeStruct((8, width), jnp.float32)
    evaluated = []
    for method in METHODS:
        try:
            jax.eval_shape(
                lambda p, x, m=method: recurrence.apply(p, x, method=m), params, x
            )
            evaluated.append(method)
        except ValueError as error:
            assert "`method`" in str(error)
    assert sorted(evaluated) == sorted(listed)
