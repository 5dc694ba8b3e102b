r"""ETSMLP on ListOps: the value of a nested expression; tables 1, 3 and 4.

    python -m launch.train --config=experiments/etsmlp/listops.py:model=gate \
        --workdir=runs/listops

``model=gate`` has a gate, other models are baselines; ``ablation`` is a row of table 3
and ``init`` one of table 4. ``hyperparameters=code`` has the warmup of 3,000 steps of
the authors' code instead of a tenth of all steps. ``size=small`` has expressions of at
most 24 tokens, on which small models learn more than the frequencies of the answers in
minutes on two CPU cores.
"""

import dataclasses
from typing import Literal

from experiments.etsmlp import settings
from experiments.etsmlp.settings import Setting
from ssm_jax.config import Config, spec
from ssm_jax.tasks import ListOps
from ssm_jax.variants import parse_variant

PAPER = {
    "": 0.6135,
    "model=gate": 0.6255,
    "ablation=real": 0.405,
    "ablation=no_alpha": 0.415,
    "ablation=no_beta": 0.5605,
    "ablation=no_omega": 0.4075,
    "init=stable_0.3": 0.524,
    "init=stable_0.5": 0.5295,
    "init=stable_0.7": 0.524,
    "init=ring_0.1_0.6": 0.6055,
    "init=ring_0.6_0.9": 0.5895,
}
FULL = Setting(
    d_model=160,
    n_layers=12,
    d_hidden=160,
    learning_rate=0.01,
    steps=90_000,
    batch_size=64,
)
SMALL = dataclasses.replace(FULL, d_model=64, n_layers=4, d_hidden=64, steps=5_000)
SMALL_TREES = {"min_length": 5, "max_length": 24, "max_depth": 4, "max_arguments": 4}


@dataclasses.dataclass(frozen=True)
class Variant:
    """Choices of the variant."""

    model: settings.Model = "etsmlp"
    ablation: settings.Ablation = "none"
    init: Literal[
        "ring_0.1_0.9",
        "stable_0.3",
        "stable_0.5",
        "stable_0.7",
        "ring_0.1_0.6",
        "ring_0.6_0.9",
    ] = "ring_0.1_0.9"
    hyperparameters: Literal["paper", "code"] = "paper"
    size: settings.Size = "full"


def get_config(variant: str = "") -> Config:
    """Returns the config of a variant."""
    choices = parse_variant(variant, Variant)
    small = choices.size == "small"
    changes = settings.ABLATIONS.get(choices.ablation, {}) | settings.INITS.get(
        choices.init, {}
    )
    setting = SMALL if small else FULL
    if choices.hyperparameters == "code":
        setting = dataclasses.replace(setting, warmup_steps=setting.steps // 30)
    task = spec(ListOps, **(SMALL_TREES if small else {}))
    return settings.experiment(
        "etsmlp/listops",
        choices,
        setting,
        published=PAPER,
        task=task,
        length=task.get_ref("max_length"),
        encoder=settings.token_encoder(setting, 16),
        head=settings.pooled_head(10),
        **changes,
    )
