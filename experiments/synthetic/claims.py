r"""Claims about recall and state tracking, and the program that measures them.

    python -m experiments.synthetic.claims --claim=parity --workdir=runs/parity

Work dirs of all runs are below ``--workdir``. The same command continues an interrupted
one; runs that are in the record, ``experiments/claims/NAME.json``, are not repeated.
``python -m experiments.ledger`` writes the page of results from the records.
"""

from functools import partial
from pathlib import Path

from absl import flags

from experiments.claims import RECORDS, Claim, run_claim
from ssm_jax.cli import app

_TRACKING = "synthetic/state_tracking:task={task},model={{model}}"
_RECALL = "synthetic/recall:task={task},model={{model}}"
# Words as long as their rows, of the training and longer; shorter ones in training.
_tracking_claim = partial(
    Claim,
    read_at=160,
    lengths=(40, 80, 160, 640, 2560),
    measured={"shortest": None},
)

_CLAIMS = (
    _tracking_claim(
        "parity",
        "Parity",
        """\
Eigenvalues in [0, 1] cannot follow parity beyond the lengths of the training, nor can a
clock, whose eigenvalues of modulus 1 do not depend on the input. Eigenvalues of the
input in [-1, 1] or of modulus 1 can, and so can a GRU ([Grazzi and others,
2024](https://arxiv.org/abs/2411.12537)). A convolution before the recurrence changes
none of this.
""",
        _TRACKING.format(task="parity"),
        {
            "tanh": "solves",
            "tanh,convolution=before": "solves",
            "cosine": "solves",
            "phase": "solves",
            "delta": "solves",
            "gru": "solves",
            "sigmoid": "cannot",
            "sigmoid,convolution=before": "cannot",
            "mamba": "cannot",
            "delta_positive": "cannot",
            "clock": "cannot",
            "clock,convolution=before": "cannot",
        },
        level=1 / 2,
    ),
    _tracking_claim(
        "sum3",
        "Sums modulo 3",
        """\
A state that returns after three equal moves needs complex eigenvalues of the input, of
modulus 1: real ones cannot follow it ([Grazzi and others,
2024](https://arxiv.org/abs/2411.12537)), nor can a clock.
""",
        _TRACKING.format(task="sum3"),
        {
            "phase": "solves",
            "phase,convolution=before": "solves",
            "gru": "solves",
            "tanh": "cannot",
            "tanh,convolution=before": "cannot",
            "cosine": "cannot",
            "clock": "cannot",
        },
        level=1 / 3,
    ),
    _tracking_claim(
        "a5",
        "Words of A5",
        """\
Products whose order matters need more than a diagonal: no layer of a diagonal
recurrence follows words of A5, and one of a nonlinear recurrence does ([Merrill and
others, 2024](https://arxiv.org/abs/2404.08819)). Nor does a layer of the delta rule
with one reflection a step. Words are of two elements that generate the group.
""",
        _TRACKING.format(task="a5,elements=two"),
        {
            "gru": "solves",
            "phase": "cannot",
            "phase,convolution=before": "cannot",
            "cosine": "cannot",
            "delta": "cannot",
        },
        level=1 / 60,
    ),
    _tracking_claim(
        "a4xz5",
        "Words of A4 x Z5",
        """\
This group is solvable, as A5 is not, so that a few layers of sums can follow its words;
its order matters, so that one diagonal layer was expected to be right in less of them
than a GRU. Words are of two elements that generate the group. A prediction that counts
them, and knows no order, is right in 1/4 of long words.
""",
        _TRACKING.format(task="a4xz5,elements=two"),
        {
            "gru": "solves",
            "phase": "less",
            "cosine": "less",
        },
        level=1 / 60,
    ),
    _tracking_claim(
        "horizon",
        "How far parity is followed",
        """\
Longer words in training, a loss at each symbol in place of the last one, and a closed
range of eigenvalues, which the cosine has and the hyperbolic tangent has not, each
lengthen the words that are followed. Read at 16 times the usual length of 40, which is
four times the longer one.
""",
        _TRACKING.format(task="parity"),
        {
            "cosine,length=160": "solves",
            "tanh,length=160": "less",
            "cosine": "less",
            "tanh": "less",
            "cosine,loss=last": "less",
            "tanh,loss=last": "less",
        },
        level=1 / 2,
        read_at=640,
        lengths=(40, 160, 640, 2560),
        beside={
            "tanh": "cosine",
            "cosine,loss=last": "cosine",
            "tanh,loss=last": "tanh",
        },
    ),
    Claim(
        "recall",
        "Associative recall",
        """\
Attention and states that are matrices recall the values of eight keys, the narrower the
model the less of them; recurrences whose decays do not depend on the input do not, with
or without a gate ([Arora and others, 2023](https://arxiv.org/abs/2312.04927)).
""",
        _RECALL.format(task="recall"),
        {
            "attention": "solves",
            "linear_attention": "solves",
            "mamba2": "solves",
            "delta": "solves",
            "delta,width=16": "solves",
            "linear_attention,width=16": "less",
            "mamba": "solves",
            "s4d": "cannot",
            "gated_s4d": "cannot",
            "attention,convolution=none": "solves",
            "gated_s4d,convolution=none": "cannot",
        },
        level=1 / 8,
        read_at=48,
        lengths=(48,),
        read="accuracy",
    ),
    Claim(
        "copying",
        "Selective copying",
        """\
To repeat tokens among noise, decays must depend on the input, as those of Mamba do;
filters do not copy among more noise than they were trained with, with or without a gate
([Gu and Dao, 2023](https://arxiv.org/abs/2312.00752), table 1).
""",
        _RECALL.format(task="copying"),
        {
            "mamba": "solves",
            "mamba2": "solves",
            "s4d": "less",
            "gated_s4d": "less",
            "mamba,convolution=none": "solves",
            "gated_s4d,convolution=none": "less",
        },
        level=1 / 14,
        read_at=72,
        lengths=(36, 72),
        read="accuracy",
    ),
    Claim(
        "induction",
        "Induction heads",
        """\
Mamba, trained on 64 steps, finds what followed the special token in rows of any length.
A filter in the same block does not, nor does attention beyond the lengths of the
training ([Gu and Dao, 2023](https://arxiv.org/abs/2312.00752), table 2).
""",
        _RECALL.format(task="induction"),
        {
            "mamba": "solves",
            "gated_s4d": "cannot",
            "attention": "less",
        },
        level=1 / 16,
        read_at=256,
        lengths=(64, 128, 256, 1024),
    ),
)
CLAIMS = {claim.name: claim for claim in _CLAIMS}
"""The claims by name."""


def define_flags() -> None:
    """Defines the flags of this program."""
    flags.DEFINE_enum("claim", None, list(CLAIMS), "Its name.", required=True)
    flags.DEFINE_string("workdir", None, "Directory of the work dirs.", required=True)


def main(argv):
    """Does the runs of a claim, and prints its table."""
    del argv
    claim = CLAIMS[flags.FLAGS.claim]
    run_claim(claim, Path(flags.FLAGS.workdir), RECORDS / f"{claim.name}.json")
    print(claim.markdown(()))


if __name__ == "__main__":
    app.run(main, define_flags)
