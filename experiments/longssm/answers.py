"""What the results say to the questions of the figures of LongSSM."""


def small(model: str, length: int, states: str) -> str:
    """The name of a reduced run."""
    return (
        f"longssm/text:model={model},length={length},state_init={states},"
        "rows=32,size=small"
    )


def _gain(model: str, length: int, of_zero: int | None = None) -> str:
    """How much lower the loss at the longest windows is with carried states."""
    zero = small(model, of_zero or length, "zero")
    return f"{{gain {small(model, length, 'carry')} {zero}}}"


def _change(model: str, length: int, states: str) -> str:
    return f"{{change {small(model, length, states)}}}"


def _extends(model: str, length: int) -> str:
    """How the seeds from zero states extend."""
    return f"{{extends {small(model, length, 'zero')}}}"


def _equal(model: str, length: int) -> str:
    zero = small(model, length, "zero")
    return f"{{equal {small(model, length, 'carry')} {zero}}}"


SECTION_3_1 = (
    "A picture of ours, of the linear model of this section: a memory fitted to one "
    "window (the dashed line), which stands for training from zero states, is close "
    "within it, the closer the more decays, and wrong beyond it by more than the "
    "memory itself for every number of decays. Fitted to eight windows, which stands "
    "for carried states, it is less wrong beyond the window for every number of "
    "decays. No model is trained."
)
FIGURE_8 = (
    "At the reduced size all seeds trained with carried states extend to 32,768 "
    "tokens. Their loss there is lower than after training from zero states by "
    f"{_gain('s5', 16)} nats (trained on 16 tokens, within three standard errors) and "
    f"{_gain('s5', 32)} (32). Trained from zero states no seed extends: from the "
    "trained length to 32,768 tokens the loss changes by "
    f"{_change('s5', 16, 'zero')} and {_change('s5', 32, 'zero')} nats. On windows of "
    "the trained length, from zero states, the loss after training with carried states "
    f"is higher by {_equal('s5', 16)} and {_equal('s5', 32)} nats."
)
FIGURE_4 = (
    "At the reduced size all seeds trained with carried states extend strongly, at "
    "each trained length. Trained from zero states the three seeds extend "
    f"{_extends('mamba', 16)} (16 tokens) and {_extends('mamba', 32)} (32): the loss "
    "at 32,768 tokens is lower than at the trained length "
    f"({_change('mamba', 16, 'zero')} and {_change('mamba', 32, 'zero')} nats), but "
    "where it is none it rises between longer windows. With carried states the loss at "
    f"32,768 is lower by {_gain('mamba', 16)} and {_gain('mamba', 32)} nats, and on "
    "windows of the trained length, from zero states, higher by "
    f"{_equal('mamba', 16)} and {_equal('mamba', 32)}."
)
FIGURE_10 = (
    "At the reduced size all seeds of the GRU extend, with carried and from zero "
    "states. With carried states the loss at 32,768 tokens is lower by "
    f"{_gain('gru', 16)}, {_gain('gru', 32)} and {_gain('gru', 128)} nats, trained on "
    "16, 32 and 128 tokens; longer windows have fewer steps, too."
)
FIGURE_5 = (
    "Not answered: at the reduced size all lengths are trained on the same number of "
    "tokens with the same number of rows, so that longer windows have fewer steps, and "
    "the effects of both cannot be told apart. The results are in the sections of "
    "figures 8 and 4."
)
FIGURE_6 = (
    "At the reduced size, with carried states and windows of 16 tokens the loss at "
    "32,768 is lower than from zero states with windows of 32 by "
    f"{_gain('mamba', 16, 32)} nats (Mamba), {_gain('s5', 16, 32)} (S5) and "
    f"{_gain('gru', 16, 32)} (GRU), after twice as many steps on as many tokens. The "
    "results are in the sections of figures 4, 8 and 10."
)
FIGURE_7 = (
    "At the reduced size, not at learning rates of 0.01 and 0.1: the perplexity in "
    "validation falls at each measurement with all seeds. At 0.5 it rises at least "
    "once with one of three seeds with carried states, with one with the penalty and "
    "with one with bounded eigenvalues, and with none from zero states. The seed with "
    "the penalty ends near the unigram model in validation and is worse than it in the "
    "test. Three seeds are too few to compare the settings. At 0.01 the results with "
    "the bound are those without. The section on stability has the last and the worst "
    "perplexity of each seed."
)
FIGURE_9 = "Not answered: the reduced runs, in the section of figure 8, have one size."
