"""Tables and figures of the paper LongSSM."""

from experiments.coverage import Paper, Table, cells
from experiments.longssm import answers

_STATES = ("carry", "zero")
_MISSING = "needs a GPU; the training text WikiText-103 is not available to us"
_FIGURES = "python -m experiments.longssm.figures"
_CONTEXT = (
    "The perplexity is measured as in validation during training: on windows of the "
    "trained length, from carried or from zero states, so that the two differ in what "
    "a prediction reads as well. The tables by length compare both from zero states."
)
_LENGTHS = ("16", "32", "64", "128", "256", "512", "1024", "2048")


def _cells(model, length, state_init=_STATES, size=("",)):
    """The runs of models, lengths and initial states."""
    return cells(
        "longssm/text", model=model, length=length, state_init=state_init, size=size
    )


def _pattern(model, length, state_init, rest):
    """The pattern of runs; all arguments are patterns."""
    return rf"longssm/text:model={model},length={length},state_init={state_init},{rest}"


def _by_learning_rate(model, state_init, penalty=""):
    """The pattern of runs of the smallest size at several learning rates."""
    rest = rf"rows=32,size=tiny,learning_rate=[^,]+{penalty}"
    return _pattern(model, "16", state_init, rest)


def _small(model, length=r"\d+", state_init=r"\w+"):
    """The pattern of runs of the reduced size."""
    return _pattern(model, length, state_init, r"(rows=32,)?size=small")


PAPER = Paper(
    "Wang, 2024: LongSSM: On the Length Extension of State-space Models in "
    "Language Modelling",
    "https://arxiv.org/abs/2406.02080",
    (
        Table(
            "Figure 8",
            "S5 trained on 16 tokens (no numbers printed)",
            "do carried states extend it to 32,768 tokens?",
            _cells(("s5",), ("16", "32")),
            reduced=(_small("s5"),),
            references=(_small("s5", r"\d+", "zero"),),
            reason=_MISSING,
            note=_CONTEXT,
            answer=answers.FIGURE_8,
        ),
        Table(
            "Figure 4",
            "Mamba trained on 32 tokens (no numbers printed)",
            "do carried states extend it beyond 1,024 tokens?",
            _cells(("mamba",), ("16", "32")),
            reduced=(_small("mamba"),),
            references=(_small("mamba", r"\d+", "zero"),),
            reason=_MISSING,
            note=_CONTEXT,
            answer=answers.FIGURE_4,
        ),
        Table(
            "Figure 10",
            "GRU by length of training (no numbers printed)",
            "do carried states help a GRU?",
            _cells(("gru",), ("16", "32", "64", "128")),
            reduced=(_small("gru"),),
            references=(_small("gru", r"\d+", "zero"),),
            reason=_MISSING,
            note=_CONTEXT,
            answer=answers.FIGURE_10,
        ),
        Table(
            "Figure 5",
            "S5 and Mamba by length of training (no numbers printed)",
            "with carried states, is a longer window better?",
            _cells(("s5", "mamba"), _LENGTHS, ("carry",)),
            reduced=(_small("(s5|mamba)", r"\d+", "carry"),),
            reason=_MISSING,
            answer=answers.FIGURE_5,
        ),
        Table(
            "Figure 6",
            "Mamba with 180M parameters (no numbers printed)",
            "are carried states at 16 tokens better than zero states at 32?",
            _cells(("mamba",), _LENGTHS, size=("d1024",)),
            reduced=(_small("mamba"),),
            reason=_MISSING,
            answer=answers.FIGURE_6,
        ),
        Table(
            "Figure 7",
            "instability of S5 with 140M parameters (no numbers printed)",
            "is training with carried states unstable?",
            _cells(("s5", "s5_bounded"), ("16",), ("carry",), ("d768",))
            + _cells(("s5",), ("16",), ("zero",), ("d768",)),
            reduced=(
                _by_learning_rate("s5(_bounded)?", r"\w+", "(,state_penalty=.+)?"),
            ),
            references=(_by_learning_rate("s5", "zero"),),
            reason=_MISSING,
            note=_CONTEXT,
            answer=answers.FIGURE_7,
        ),
        Table(
            "Figure 9",
            "S5 from zero states by size (no numbers printed)",
            "do larger models need longer windows to extend?",
            _cells(("s5",), _LENGTHS[2:7], ("zero",), ("d192", "", "d768", "d1024")),
            reduced=(_small("s5", r"\d+", "zero"),),
            reason=_MISSING,
            answer=answers.FIGURE_9,
        ),
        Table(
            "Table 1",
            "asymptotic costs of a step",
            "how do costs grow with the context?",
            programs=("python -m benchmarks --suite=decoding",),
            reason="orders of growth; no results",
        ),
        Table(
            "Table 2",
            "recurrent weights and states of S5, Mamba and linear attention",
            "how do the models differ?",
            reason="definitions; no results",
        ),
        Table(
            "Figure 1",
            "three types of length extension",
            "what is length extension?",
            reason="a diagram; no results",
        ),
        Table(
            "Figure 2",
            "published Mamba models beyond their length of training",
            "up to which length do they extend?",
            programs=(f"{_FIGURES}.pretrained --data=DATA",),
            reason="the published weights are not available to us",
        ),
        Table(
            "Figure 3",
            "zero states and carried states",
            "how do the two differ?",
            reason="a diagram; no results",
        ),
        Table(
            "Section 3.1",
            "length extension is extrapolation",
            "how wrong is a fitted memory beyond the window?",
            programs=(f"{_FIGURES}.extrapolation",),
            picture="longssm/extrapolation.png",
            answer=answers.SECTION_3_1,
            reason="a proof; no results",
        ),
    ),
)
"""All tables and figures of the paper."""
