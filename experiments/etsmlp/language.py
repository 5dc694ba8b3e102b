r"""ETSMLP on sentences, word by word, trained from nothing; table 2.

    python -m launch.train --config=experiments/etsmlp/language.py:sst2+gate \
        --data_dir=FOLDER --workdir=runs/sst2

``FOLDER`` holds glue or imdb_reviews, as ``python -m launch.prepare`` makes them. The
variant begins with the set: ``cola``, ``sst2``, ``imdb``, ``qqp``, ``mrpc``, ``mnli``
or ``qnli``; then ``gate`` or ``transformer`` or nothing; ``code`` for what the authors'
code has in place of table 5 (learning rate and decay 0.01; MNLI of 12 layers);
``small`` for a size that two CPU cores train in minutes.

The paper names no batch size and, but for MNLI, no number of steps; those here are
ours. It says nothing of its Transformer but that it is of similar size, so that the
figure of that is not compared.

.. results: etsmlp/language

===============  =======================  ======  ========  =====  =======
variant          test accuracy            error   baseline  seeds  notes
===============  =======================  ======  ========  =====  =======
cola+gate+small  0.6890 ± 0.0031 (stale)  0.0143  0.6913    3      [1] [2]
mrpc+gate+small  0.6838 ± 0.0000 (stale)  0.0230  0.6838    3      [1] [3]
sst2+gate+small  0.8096 ± 0.0109 (stale)  0.0133  0.5092    3      [1]
===============  =======================  ======  ========  =====  =======

- [1] stale: Trained without the dropout after the embedding that the authors' code has.
- [2] not above the majority class by 2 standard errors
- [3] = majority class

.. end of results
"""

import dataclasses

from experiments.etsmlp import parts
from experiments.etsmlp.parts import Setting
from ssm_jax.config import Config, spec
from ssm_jax.models import PooledHead
from ssm_jax.tasks import Glue, ImdbWords

PAPER = {
    "cola": {"": 0.692, "gate": 0.693},
    "sst2": {"": 0.813, "gate": 0.812},
    "imdb": {"": 0.871, "gate": 0.871},
    "qqp": {"": 0.816, "gate": 0.823},
    "mrpc": {"": 0.716, "gate": 0.703},
    "mnli": {"": 0.606, "gate": 0.613},
    "qnli": {"": 0.645, "gate": 0.648},
}
_ONE = Setting(
    d_model=512,
    n_layers=6,
    d_hidden=512,
    learning_rate=1e-5,
    weight_decay=0.1,
    dropout=0.1,
    ring=(0.1, 0.9, 6.28),
    steps=60_000,
    warmup_parts=20,
    batch_size=64,
)
FULL = {
    "cola": dataclasses.replace(_ONE, n_layers=3, steps=4_000),
    "sst2": dataclasses.replace(_ONE, n_layers=12, steps=20_000),
    "imdb": dataclasses.replace(
        _ONE, n_layers=4, dropout=0.3, ring=(0.1, 0.9, 3.14), steps=8_000
    ),
    "qqp": _ONE,
    "mrpc": dataclasses.replace(_ONE, steps=2_000),
    "mnli": dataclasses.replace(_ONE, steps=140_000),
    "qnli": dataclasses.replace(_ONE, steps=30_000),
}
_SMALL = dataclasses.replace(
    _ONE,
    d_model=64,
    n_layers=2,
    d_hidden=64,
    learning_rate=0.002,
    dropout=0.3,
    steps=1_500,
)
SMALL = {
    **dict.fromkeys(FULL, _SMALL),
    "cola": dataclasses.replace(_SMALL, learning_rate=0.001, steps=400),
    "mrpc": dataclasses.replace(_SMALL, learning_rate=0.001, steps=300),
}


def get_config(variant: str = "sst2") -> Config:
    """The experiment in one of its variants."""
    of_set, model, code, small = parts.chosen(
        variant, tuple(FULL), ("gate", "transformer"), ("code",), ("small",)
    )
    of_set = of_set or "sst2"
    setting = (SMALL if small else FULL)[of_set]
    if code:
        setting = dataclasses.replace(
            setting,
            learning_rate=0.01,
            weight_decay=0.01,
            n_layers=12 if of_set == "mnli" else setting.n_layers,
        )
    task = spec(ImdbWords) if of_set == "imdb" else spec(Glue, name=of_set)
    if small:
        task.update(length=256 if of_set == "imdb" else 64, vocabulary=20_000)
    return parts.experiment(
        "etsmlp/language",
        variant,
        None if code or small else PAPER[of_set].get(model),
        setting,
        task=task,
        length=task.get_ref("length"),
        encoder=parts.tokens(setting, task.get_ref("vocabulary"), language=True),
        head=spec(
            PooledHead,
            d_output=3 if of_set == "mnli" else 2,
            d_hidden=setting.d_model,
        ),
        model=model,
        language=True,
    )
