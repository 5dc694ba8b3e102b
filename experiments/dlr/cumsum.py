"""DLR on CumSum: the prefix sum over the root of its length; one slow kernel does it.

    python -m launch.train --config=experiments/dlr/cumsum.py --workdir=runs/cumsum

=======  =======================================================
variant  what it is
=======  =======================================================
(none)   table 1, DLR of one layer, L = 4096 (paper: R2 1.00)
demo     L = 1024, 64 channels, 256 states, 800 steps
=======  =======================================================

.. results: dlr/cumsum

=======  =======  ========  =====
variant  test r2  baseline  seeds
=======  =======  ========  =====
demo     0.9909   -0.0040   1
=======  =======  ========  =====

.. end of results
"""

from ml_collections import ConfigDict

from experiments.dlr import atomic
from ssm_jax.config import Config, spec
from ssm_jax.tasks import CumSum


def get_config(variant: str = "") -> Config:
    """The experiment, or its variant ``demo`` of a minute on 2 CPU cores."""
    if variant not in ("", "demo"):
        raise atomic.unknown(variant, ["demo"])
    task = spec(CumSum, length=1024 if variant else 4096)
    model = atomic.model(1)
    optimizer, training = atomic.optimizer(), atomic.training()
    if variant == "demo":
        model = atomic.model(1, d_model=64, d_state=256)
        optimizer.learning_rate = 1e-3
        training.update(steps=800, evaluate_every=200, evaluation_batches=8, seed=0)
    return ConfigDict(
        {
            "experiment": "dlr/cumsum",
            "variant": variant,
            "paper": None if variant else 1.0,
            "task": task,
            "model": model,
            "optimizer": optimizer,
            "training": training,
        }
    )
