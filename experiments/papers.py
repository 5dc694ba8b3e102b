"""Tables and figures of the papers, with the experiments that are their cells.

An experiment with published results has a dict ``PAPER`` from variants to results; each
of these variants is a cell here, which `tests/experiments/test_ledger.py` checks.
"""

import itertools
from typing import NamedTuple


class Table(NamedTuple):
    """A table or figure of a paper.

    Attributes:
      title: Title of the table.
      cells: Its cells, as in ``--config`` without ``experiments/`` and ``.py``.
    """

    title: str
    cells: tuple[str, ...]


class Paper(NamedTuple):
    """A paper and its tables.

    Attributes:
      title: Authors, year and title.
      url: URL of the paper.
      tables: Its tables and figures.
    """

    title: str
    url: str
    tables: tuple[Table, ...]


def _cells(experiment: str, **choices: tuple[str, ...]) -> tuple[str, ...]:
    """Returns all combinations of choices; "" leaves a name out."""
    named = [
        [f"{name}={value}" if value else "" for value in values]
        for name, values in choices.items()
    ]
    variants = (",".join(filter(None, each)) for each in itertools.product(*named))
    return tuple(f"{experiment}:{each}".rstrip(":") for each in variants)


_GATES = ("", "gate")
_UNITS = ("fru", "sru", "lstm", "rnn")
_ATOMIC = (
    "shift", "cumsum", "cummax", "select_fixed", "solve_fixed", "reverse", "solve",
    "select", "sort", "context_shift", "mips",
)  # fmt: skip
_OF_TABLE_6 = tuple(
    task for task in _ATOMIC if task not in ("cumsum", "cummax", "mips")
)
_ARENA = ("listops", "text", "retrieval", "pathfinder", "pathx")
_LONG = ("", "dlr_prod", "dss", "sgconv")
_LENGTHS = ("", "65536", "262144", "1048576")
_HIGHER = ("", "dss", "local_attention")

PAPERS = {
    "dlr": Paper(
        "Gupta, Mehta and Berant, 2022: Simplifying and Understanding State Space "
        "Models with Diagonal Linear RNNs",
        "https://arxiv.org/abs/2212.00768",
        (
            Table(
                "Table 1: atomic tasks",
                _cells("dlr/atomic", task=_ATOMIC)
                + _cells("dlr/atomic", task=_ATOMIC, model=("dss", "attention"))
                + _cells("dlr/atomic", task=_ATOMIC, n_layers=("6",))
                + _cells("dlr/atomic", task=_ATOMIC, n_layers=("6",), length=("512",))
                + _cells(
                    "dlr/atomic",
                    task=_ATOMIC,
                    model=("attention",),
                    n_layers=("2",),
                    length=("512",),
                ),
            ),
            Table(
                "Table 2: Shift at 16,384 to 1,048,576 steps",
                _cells("dlr/long_shift", model=_LONG, length=_LENGTHS),
            ),
            Table(
                "Table 3: higher-order tasks",
                _cells("dlr/listops_subtrees", model=_HIGHER)
                + ("dlr/pathfinder_segmentation:model=local_attention",)
                + _cells(
                    "dlr/pathfinder_segmentation",
                    pixels=("", "256", "512"),
                    model=("", "dss"),
                ),
            ),
            Table(
                "Table 4: Long Range Arena and Speech Commands",
                _cells("dlr/arena", task=_ARENA) + ("dlr/speech",),
            ),
            Table(
                "Table 6: attention with feed-forward layers",
                _cells("dlr/atomic", task=_OF_TABLE_6, model=("attention_feedforward",))
                + _cells(
                    "dlr/atomic",
                    task=_OF_TABLE_6,
                    model=("attention_feedforward",),
                    n_layers=("2",),
                    length=("512",),
                ),
            ),
        ),
    ),
    "etsmlp": Paper(
        "Chu and Lin, 2024: Incorporating Exponential Smoothing into MLP",
        "https://arxiv.org/abs/2403.17445",
        (
            Table(
                "Table 1: Long Range Arena",
                tuple(
                    cell
                    for task in ("listops", "text", "retrieval", "image", "pathfinder")
                    for cell in _cells(f"etsmlp/{task}", model=_GATES)
                )
                + _cells("etsmlp/pathx", model=_GATES, small_change=("true",)),
            ),
            Table(
                "Table 2: language",
                _cells(
                    "etsmlp/language",
                    dataset=("cola", "sst2", "imdb", "qqp", "mrpc", "mnli", "qnli"),
                    model=_GATES,
                ),
            ),
            Table(
                "Table 3: ablations on ListOps",
                _cells(
                    "etsmlp/listops",
                    ablation=("", "real", "no_alpha", "no_beta", "no_omega"),
                ),
            ),
            Table(
                "Table 4: initializations on ListOps",
                _cells(
                    "etsmlp/listops",
                    init=(
                        "", "stable_0.3", "stable_0.5", "stable_0.7", "ring_0.1_0.6",
                        "ring_0.6_0.9",
                    ),
                ),
            ),
        ),
    ),
    "fru": Paper(
        "Zhang, Lin, Song and Dhillon, 2018: Learning Long Term Dependencies via "
        "Fourier Recurrent Units",
        "https://arxiv.org/abs/1803.06585",
        (
            Table(
                "Table 1: MNIST pixel by pixel",
                _cells(
                    "fru/pixel_mnist",
                    inputs=("pixels",),
                    model=("fru", "fru40", "sru", "lstm", "rnn"),
                ),
            ),
            Table(
                "Table 2: permuted MNIST",
                _cells("fru/pixel_mnist", inputs=("permuted",), model=_UNITS),
            ),
            Table(
                "Table 3: IMDB",
                ("fru/imdb:model=fru", "fru/imdb:model=fru,n_frequencies=1")
                + _cells("fru/imdb", model=_UNITS[1:]),
            ),
            Table(
                "Figures 3 and 4: mixtures of curves (the paper prints no numbers)",
                _cells(
                    "fru/mixture",
                    curves=("sines", "poly5", "poly10", "poly15"),
                    model=_UNITS,
                ),
            ),
            Table(
                "Figures 10 and 11: MNIST row by row (the paper prints no numbers)",
                _cells("fru/pixel_mnist", inputs=("rows",), model=_UNITS),
            ),
        ),
    ),
    "longssm": Paper(
        "Wang, 2024: LongSSM: On the Length Extension of State-space Models in "
        "Language Modelling",
        "https://arxiv.org/abs/2406.02080",
        (
            Table(
                "Figures 4 to 6: models by length of training (no numbers printed)",
                _cells(
                    "longssm/text",
                    model=("s5", "mamba", "gru"),
                    length=("16", "32", "128", "512"),
                    state_init=("carry", "zero"),
                ),
            ),
        ),
    ),
}  # fmt: skip

HEADLINES = (
    "dlr/atomic:task=shift,size=demo",
    "dlr/atomic:task=cumsum,size=demo",
    "dlr/digits",
    "etsmlp/text:model=gate,size=small",
    "fru/mixture:curves=sines,model=fru,size=small",
    "longssm/text:model=s5,length=16,state_init=carry,rows=32,size=small",
)
"""The results that the README shows."""
