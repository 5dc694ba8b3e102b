r"""DLR on the Long Range Arena: one label per sequence; table 4.

    python -m launch.train --config=experiments/dlr/arena.py:task=retrieval \
        --data_dir=FOLDER --workdir=runs/retrieval

========  ============================================================================
variant   description
========  ============================================================================
task      ``listops`` (paper: accuracy 0.605), ``text`` (0.867), ``retrieval`` (0.891),
          ``pathfinder`` (0.925) or ``pathx`` (0.945)
model     ``dlr`` (default), or in its place ``s4`` with its default sizes and steps,
          which have a learning rate of at most 1e-3; the paper has no such setting
size      ``full`` (default), or ``small``: 2 layers of 32 channels on shorter sequences
          or fewer examples, for two CPU cores
========  ============================================================================

``FOLDER`` contains imdb_reviews for ``text`` and aan for ``retrieval``, as prepared by
``python -m launch.prepare``. The other tasks are generated; the images of the last two
can be prepared once for several runs.

The paper's table of hyperparameters is known to us in part; `classification` lists what
is chosen here.
"""

import dataclasses
from typing import Literal

from experiments.dlr import classification
from experiments.dlr.classification import ModelName, Setting
from ssm_jax.config import Config, spec
from ssm_jax.models import PairHead, PooledHead, TokenEncoder, VectorEncoder
from ssm_jax.tasks import ImdbBytes, ListOps, Pathfinder, Retrieval
from ssm_jax.variants import format_variant, parse_variant

TaskName = Literal["listops", "text", "retrieval", "pathfinder", "pathx"]
"""In the order of table 4."""

PAPER = {
    "task=listops": 0.605,
    "task=text": 0.867,
    "task=retrieval": 0.891,
    "task=pathfinder": 0.925,
    "task=pathx": 0.945,
}
FULL: dict[TaskName, Setting] = {
    "listops": Setting(
        dt_min=1e-3, dt_max=0.5, learning_rate=4e-4, batch_size=50, epochs=160,
        n_train=96_000, weight_decay=0.05, dropout=0.2,
    ),
    "text": Setting(
        n_layers=4, dt_min=0.2, dt_max=0.5, learning_rate=1e-4, batch_size=128,
        epochs=200, n_train=22_500, weight_decay=0.0, dropout=0.3,
    ),
    "retrieval": Setting(
        dt_min=0.05, dt_max=0.5, learning_rate=1e-4, batch_size=32, epochs=30,
        n_train=147_086, weight_decay=0.05, dropout=0.05,
    ),
    "pathfinder": Setting(
        dt_min=1e-4, dt_max=0.1, learning_rate=4e-4, batch_size=64, epochs=200,
        n_train=160_000, weight_decay=0.03, dropout=0.05,
    ),
    "pathx": Setting(
        dt_min=1e-4, dt_max=0.1, learning_rate=1e-4, batch_size=16, epochs=50,
        n_train=160_000, weight_decay=0.05, dropout=0.0,
    ),
}  # fmt: skip
SMALL: dict[TaskName, Setting] = {
    "listops": FULL["listops"].small(epochs=1, n_train=96_000, batch_size=48),
    "text": FULL["text"].small(epochs=3, n_train=22_500),
    "retrieval": FULL["retrieval"].small(epochs=1, n_train=32_000),
    "pathfinder": FULL["pathfinder"].small(epochs=1, n_train=40_000),
    "pathx": FULL["pathx"].small(epochs=1, n_train=5_000),
}
SMALL_TREES = {"min_length": 5, "max_length": 24, "max_depth": 4, "max_arguments": 4}


@dataclasses.dataclass(frozen=True)
class Variant:
    """Choices of the variant."""

    task: TaskName
    model: ModelName = "dlr"
    size: Literal["full", "small"] = "full"


def get_config(variant: str = "task=listops") -> Config:
    """Returns the config of a variant."""
    choices = parse_variant(variant, Variant)
    small = choices.size == "small"
    setting = (SMALL if small else FULL)[choices.task]
    d, length = setting.d_model, 1024 if small else 4096
    # At the small size all reviews are read and the other sets are smaller.
    if choices.task == "listops":
        task = spec(ListOps, **(SMALL_TREES if small else {}))
    elif choices.task == "text":
        task = spec(ImdbBytes, length=length)
    elif choices.task == "retrieval":
        task = spec(Retrieval, length=min(length, 4000))
    else:
        task = spec(Pathfinder, size=128 if choices.task == "pathx" else 32)
        if small:
            task.update(n_train=setting.n_train, n_validation=1_000, n_test=2_000)
    if choices.task in ("pathfinder", "pathx"):
        encoder = spec(VectorEncoder, d_model=d)
    else:
        vocabulary = 16 if choices.task == "listops" else 257
        encoder = spec(TokenEncoder, d_model=d, vocabulary=vocabulary)
    if choices.task == "retrieval":
        head = spec(PairHead, d_output=2, d_hidden=d, dropout=setting.dropout)
    else:
        head = spec(PooledHead, d_output=10 if choices.task == "listops" else 2)
    return classification.experiment(
        "dlr/arena",
        format_variant(choices),
        setting,
        published=PAPER,
        task=task,
        encoder=encoder,
        head=head,
        model=choices.model,
    )
