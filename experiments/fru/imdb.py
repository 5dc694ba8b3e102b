r"""FRU, SRU, LSTM and RNN on the words of film reviews; table 3.

    python -m launch.train --config=experiments/fru/imdb.py:words+fru \
        --data_dir=FOLDER --workdir=runs/words_fru

The variant is ``words`` with five waves, or ``words1`` with the frequency 0 alone, then
``+`` and ``fru``, ``sru``, ``lstm`` or ``rnn``; with ``+small`` four of the twenty
epochs. ``FOLDER`` holds imdb_reviews, as ``python -m launch.prepare`` makes it.

The authors made this table with another library than the others (tflearn): its RNN has
a sigmoid, as here, and its output layer and embedding are drawn from a normal of
standard deviation 0.02, truncated at two of them, here not truncated. They run over the
padding behind a review; here the last word is the last step.
"""

from ml_collections import ConfigDict

from experiments.fru import units
from ssm_jax.config import Config, spec
from ssm_jax.models import TokenEncoder
from ssm_jax.tasks import ImdbWords
from ssm_jax.training import TrainConfig

WAVES = {"greatest": 100.0, "horizon": 300, "d_statistic": 10}
PAPER = {
    "words+fru": 0.8671,
    "words1+fru": 0.8644,
    "words+sru": 0.8640,
    "words+lstm": 0.8364,
    "words+rnn": 0.5053,
}
RATES = {
    "fru": (0.001, 0.2, 5.0),
    "sru": (0.001, 0.5, 5.0),
    "lstm": (0.01, 0.8, 5.0),
    "rnn": (0.01, 0.8, 5.0),
}


def get_config(variant: str = "words+fru") -> Config:
    """The experiment in one of its variants."""
    words, unit, small = units.chosen(variant, ("words", "words1"))
    task = spec(ImdbWords, length=300, vocabulary=10_000)
    tokens = task.get_ref("vocabulary")
    encoder = spec(TokenEncoder, d_model=128, vocabulary=tokens, std=0.02)
    steps = 2_800 if small else 14_000
    return ConfigDict(
        {
            "experiment": "fru/imdb",
            "variant": variant,
            "paper": PAPER.get(variant),
            "task": task,
            "model": units.network(
                unit,
                d_output=2,
                waves=WAVES | {"n": 5 if words == "words" else 1},
                d_unit=128,
                encoder=encoder,
                dropout=0.2,
                rnn_activation="sigmoid",
                head_init="normal",
            ),
            "optimizer": units.optimizer(*RATES[unit]),
            "training": spec(
                TrainConfig, steps=steps, batch_size=32, evaluate_every=steps // 10
            ),
        }
    )
