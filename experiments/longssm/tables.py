"""Tables and figures of the paper LongSSM."""

from experiments.longssm.state_passing import StatePassing
from experiments.page import Curves, Lengths, Paper, Pictures, Table, cells

_STATES = ("carry", "zero")
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


def _equal_text(model):
    """The pattern of runs of the smallest size on equal text in equally many steps."""
    return _pattern(model, r"\d+", "carry", "size=tiny")


def _equal_steps(model, state_init):
    """The pattern of runs of small widths in equally many steps of 32 rows."""
    return _pattern(
        model, r"\d+", state_init, r"rows=32,size=tiny(,width=\d+)?,steps=800"
    )


def _small(model, length=r"\d+", state_init=r"\w+"):
    """The pattern of runs of the reduced size."""
    return _pattern(model, length, state_init, r"(rows=32,)?size=small")


def _mamba_on_16(state_init=r"\w+"):
    """The pattern of runs of Mamba on windows of 16, by any of its settings."""
    changes = r"(,learning_rate=0.02)?(,d_state=\d+)?(,weight_decay=0)?(,steps=1500)?"
    rest = r"(rows=32,)?size=(small|tiny)" + changes
    return _pattern("mamba", "16", state_init, rest)


PAPER = Paper(
    "Wang, 2024: LongSSM: On the Length Extension of State-space Models in "
    "Language Modelling",
    "https://arxiv.org/abs/2406.02080",
    (
        Table(
            "Figure 8",
            "S5 trained on 16 tokens (no numbers printed)",
            _cells(("s5",), ("16", "32")),
            reduced=(_small("s5"),),
            references=(_small("s5", r"\d+", "zero"),),
            note=_CONTEXT,
        ),
        Table(
            "Figure 4",
            "Mamba trained on 32 tokens (no numbers printed)",
            _cells(("mamba",), ("16", "32")),
            reduced=(_small("mamba"), _mamba_on_16()),
            references=(_small("mamba", r"\d+", "zero"), _mamba_on_16("zero")),
            note=_CONTEXT,
        ),
        Table(
            "Figure 10",
            "GRU by length of training (no numbers printed)",
            _cells(("gru",), ("16", "32", "64", "128")),
            reduced=(_small("gru"),),
            references=(_small("gru", r"\d+", "zero"),),
            note=_CONTEXT,
        ),
        Table(
            "Figure 5",
            "S5 and Mamba by length of training (no numbers printed)",
            _cells(("s5", "mamba"), _LENGTHS, ("carry",)),
            reduced=(_equal_text("(s5|mamba)"), _equal_steps("s5", "carry")),
            note=_CONTEXT,
        ),
        Table(
            "Figure 6",
            "Mamba with 180M parameters (no numbers printed)",
            _cells(("mamba",), _LENGTHS, size=("d1024",)),
        ),
        Table(
            "Figure 7",
            "instability of S5 with 140M parameters (no numbers printed)",
            _cells(("s5", "s5_bounded"), ("16",), ("carry",), ("d768",))
            + _cells(("s5",), ("16",), ("zero",), ("d768",)),
            reduced=(
                _by_learning_rate("s5(_bounded)?", r"\w+", "(,state_penalty=.+)?"),
            ),
            references=(_by_learning_rate("s5", "zero"),),
            note=_CONTEXT,
        ),
        Table(
            "Figure 9",
            "S5 from zero states by size (no numbers printed)",
            _cells(("s5",), _LENGTHS[2:7], ("zero",), ("d192", "", "d768", "d1024")),
            reduced=(_equal_steps("s5", "zero"),),
        ),
        Table(
            "Further settings",
            "bfloat16 beside float32",
            reduced=(_pattern("dlr", "128", "zero", "size=tiny(,dtype=bfloat16)?"),),
            references=(_pattern("dlr", "128", "zero", "size=tiny"),),
        ),
        Pictures(
            "Section 3.1: length extension is extrapolation",
            "Drawn by `python -m experiments.longssm.figures.extrapolation`.\n",
            {"length extension is extrapolation": "longssm/extrapolation.png"},
        ),
        Curves(
            "Stability by learning rate",
            """\
The runs of figure 7. The perplexity above is that of the step of the highest accuracy
in validation, which may hide that training is unstable; here it is that of the
validation split, which is measured four times in training, of each seed: at the last
step, and the worst after the first measurement. `rises` is the number of seeds whose
perplexity is higher in one of the measurements than in the one before.
""",
            _by_learning_rate("s5(_bounded)?", r"\w+", "(,state_penalty=.+)?"),
        ),
        Lengths(
            "Do carried states extend it?",
            "|".join(
                (
                    _small("(s5|mamba|gru)"),
                    _mamba_on_16(),
                    _equal_text("(s5|mamba)"),
                    _equal_steps("s5", r"\w+"),
                )
            ),
            "longssm/lengths.png",
        ),
        StatePassing(),
    ),
)
"""What the paper has results of, and what is shown beside them."""
