r"""ETSMLP on sentences of words, without pretraining; table 2.

    python -m launch.train \
        --config=experiments/etsmlp/language.py:dataset=sst2,model=gate \
        --data_dir=FOLDER --workdir=runs/sst2

``FOLDER`` contains glue or imdb_reviews as prepared by ``python -m launch.prepare``.
``hyperparameters=code`` selects the hyperparameters of the authors' code instead of
those of table 5 (learning rate and weight decay 0.01; 12 layers for MNLI), and
``size=small`` trains on two CPU cores in minutes.

The paper does not state the batch size, nor the number of steps except for MNLI; the
values here are ours. It describes its Transformer only as of similar size, so the
published result of the Transformer is not compared.
"""

import dataclasses
from typing import Literal

from experiments.etsmlp import settings
from experiments.etsmlp.settings import Setting
from ssm_jax.config import Config, spec
from ssm_jax.models import PooledHead
from ssm_jax.tasks import Glue, ImdbWords
from ssm_jax.variants import parse_variant

PAPER = {
    "dataset=cola": 0.692,
    "dataset=cola,model=gate": 0.693,
    "dataset=sst2": 0.813,
    "dataset=sst2,model=gate": 0.812,
    "dataset=imdb": 0.871,
    "dataset=imdb,model=gate": 0.871,
    "dataset=qqp": 0.816,
    "dataset=qqp,model=gate": 0.823,
    "dataset=mrpc": 0.716,
    "dataset=mrpc,model=gate": 0.703,
    "dataset=mnli": 0.606,
    "dataset=mnli,model=gate": 0.613,
    "dataset=qnli": 0.645,
    "dataset=qnli,model=gate": 0.648,
}
_DEFAULT = Setting(
    d_model=512,
    n_layers=6,
    d_hidden=512,
    learning_rate=1e-5,
    weight_decay=0.1,
    dropout=0.1,
    r_min=0.1,
    r_max=0.9,
    max_phase=6.28,
    steps=60_000,
    warmup_steps=3_000,
    batch_size=64,
)
FULL = {
    "cola": dataclasses.replace(_DEFAULT, n_layers=3, steps=4_000, warmup_steps=200),
    "sst2": dataclasses.replace(
        _DEFAULT, n_layers=12, steps=20_000, warmup_steps=1_000
    ),
    "imdb": dataclasses.replace(
        _DEFAULT,
        n_layers=4,
        dropout=0.3,
        r_min=0.1,
        r_max=0.9,
        max_phase=3.14,
        steps=8_000,
        warmup_steps=400,
    ),
    "qqp": _DEFAULT,
    "mrpc": dataclasses.replace(_DEFAULT, steps=2_000, warmup_steps=100),
    "mnli": dataclasses.replace(_DEFAULT, steps=140_000, warmup_steps=7_000),
    "qnli": dataclasses.replace(_DEFAULT, steps=30_000, warmup_steps=1_500),
}
_SMALL = dataclasses.replace(
    _DEFAULT,
    d_model=64,
    n_layers=2,
    d_hidden=64,
    learning_rate=0.002,
    dropout=0.3,
    steps=1_500,
    warmup_steps=75,
)
SMALL = {
    **dict.fromkeys(FULL, _SMALL),
    "cola": dataclasses.replace(
        _SMALL, learning_rate=0.001, steps=400, warmup_steps=20
    ),
    "mrpc": dataclasses.replace(
        _SMALL, learning_rate=0.001, steps=300, warmup_steps=15
    ),
}


@dataclasses.dataclass(frozen=True)
class Variant:
    """Choices of the variant."""

    dataset: Literal["cola", "sst2", "imdb", "qqp", "mrpc", "mnli", "qnli"]
    model: Literal["etsmlp", "gate", "transformer"] = "etsmlp"
    hyperparameters: Literal["paper", "code"] = "paper"
    size: settings.Size = "full"


def get_config(variant: str = "dataset=sst2") -> Config:
    """Returns the config of a variant."""
    choices = parse_variant(variant, Variant)
    dataset, small = choices.dataset, choices.size == "small"
    setting = (SMALL if small else FULL)[dataset]
    if choices.hyperparameters == "code":
        setting = dataclasses.replace(
            setting,
            learning_rate=0.01,
            weight_decay=0.01,
            n_layers=12 if dataset == "mnli" else setting.n_layers,
        )
    task = spec(ImdbWords) if dataset == "imdb" else spec(Glue, name=dataset)
    if small:
        task.update(length=256 if dataset == "imdb" else 64, vocabulary=20_000)
    return settings.experiment(
        "etsmlp/language",
        choices,
        setting,
        published=PAPER,
        task=task,
        length=task.get_ref("length"),
        encoder=settings.token_encoder(
            setting, task.get_ref("vocabulary"), language=True
        ),
        head=spec(
            PooledHead,
            d_output=3 if dataset == "mnli" else 2,
            d_hidden=setting.d_model,
        ),
        language=True,
    )
