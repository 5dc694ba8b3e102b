"""DLR on Shift: eight delays of a sequence, each a kernel with a single spike.

    python -m launch.train --config=experiments/dlr/shift.py --workdir=runs/shift

=======  =======================================================
variant  what it is
=======  =======================================================
(none)   table 1, DLR of one layer, L = 4096 (paper: R2 1.00)
demo     L = 1024, 64 channels, 1,024 states, 800 steps
=======  =======================================================

.. results: dlr/shift

=======  =======  ========  =====
variant  test r2  baseline  seeds
=======  =======  ========  =====
demo     0.9938   0.0000    1
=======  =======  ========  =====

.. end of results
"""

from ml_collections import ConfigDict

from experiments.dlr import atomic
from ssm_jax.config import Config, spec
from ssm_jax.tasks import Shift


def get_config(variant: str = "") -> Config:
    """The experiment, or its variant ``demo`` of a minute on 2 CPU cores."""
    if variant not in ("", "demo"):
        raise atomic.unknown(variant, ["demo"])
    task = spec(Shift, length=1024 if variant else 4096)
    model = atomic.model(task.get_ref("n_shifts"))
    optimizer, training = atomic.optimizer(), atomic.training()
    if variant == "demo":
        model = atomic.model(task.get_ref("n_shifts"), d_model=64, d_state=1024)
        optimizer.learning_rate = 1e-3
        training.update(steps=800, evaluate_every=200, evaluation_batches=8, seed=0)
    return ConfigDict(
        {
            "experiment": "dlr/shift",
            "variant": variant,
            "paper": None if variant else 1.0,
            "task": task,
            "model": model,
            "optimizer": optimizer,
            "training": training,
        }
    )
