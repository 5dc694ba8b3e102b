r"""FRU, SRU, LSTM and RNN on mixtures of curves; figures 3 and 4.

    python -m launch.train --config=experiments/fru/mixture.py:sines+fru \
        --workdir=runs/sines_fru

The variant is ``sines``, ``poly5``, ``poly10`` or ``poly15``, then ``+`` and ``fru``,
``sru``, ``lstm`` or ``rnn``; with ``+small`` ten of the hundred epochs. The network
reads a curve of 176 steps and gives all of it after the last one, as the authors' code
does. The paper has pictures of the errors and no numbers. The learning rate falls by
0.7 every 1,000 steps for the sines, as the authors' configurations have it, where the
paper says 0.9.

How far gradients reach is measured on the way, for figure 5 (``poly5``, which
`launch.report` draws): of the prediction from the first ``t`` steps, which is what the
caption says, and of each 20 outputs of the last prediction, which is what the authors'
code computes. There the paper has scales up to 0.95 in its SRU.

The part of the variance that the units miss, and the ratio of the LSTM's to the FRU's:

.. results: fru/mixture:units

============  ========  ========  ========  ========  ==========  =======
1 - R2        RNN       LSTM      SRU       FRU       LSTM / FRU  notes
============  ========  ========  ========  ========  ==========  =======
poly5         7.5e-02*  5.2e-04*  4.8e-04*  1.2e-04*  4.5         [1] [2]
sines         1.2e-01*  5.0e-04*  2.6e-04*  8.8e-06*  57.2        [1] [3]
poly5+small   2.9e-01   2.0e-01*  1.2e-03*  4.9e-04               [1]
poly10+small  3.7e-01*  2.9e-02*  3.6e-03*  4.5e-04*  65.0        [1]
poly15+small  3.1e-01*  3.9e-02*  4.8e-03*  2.6e-03*  15.0        [1]
sines+small   1.7e-01   2.4e-02*  2.3e-02*  2.7e-04               [1]
============  ========  ========  ========  ========  ==========  =======

- [1] `*` is stale: Drawn with standard deviation sqrt(0.1) where the authors' code has
  0.1, and the output layer was initialized uniformly instead of as theirs.
- [2] the FRU is 4.5 times below the LSTM, where the paper says that it is orders of
  magnitude below all others
- [3] the FRU is 57.2 times below the LSTM, where the paper says that it is orders of
  magnitude below all others

.. end of results
"""

from ml_collections import ConfigDict

from experiments.fru import units
from ssm_jax.config import Config, spec
from ssm_jax.tasks import Mixture
from ssm_jax.training import TrainConfig

WAVES = {"n": 120, "greatest": 58.0, "horizon": 176, "d_statistic": 5}
DEGREES = {"sines": None, "poly5": 5, "poly10": 10, "poly15": 15}


def get_config(variant: str = "sines+fru") -> Config:
    """The experiment in one of its variants."""
    curves, unit, small = units.chosen(variant, tuple(DEGREES))
    clipped = curves == "sines" or unit in ("fru", "sru")
    training = spec(
        TrainConfig,
        steps=1_000 if small else 10_000,
        batch_size=32,
        evaluate_every=100 if small else 1_000,
        gradient_steps=tuple(range(16, 177, 20)),
        gradient_outputs=20,
    )
    return ConfigDict(
        {
            "experiment": "fru/mixture",
            "variant": variant,
            "paper": None,
            "task": spec(Mixture, degree=DEGREES[curves]),
            "model": units.network(unit, d_output=175, waves=WAVES),
            "optimizer": units.optimizer(
                1e-3, 0.7 if curves == "sines" else 0.9, 5.0 if clipped else None
            ),
            "training": training,
        }
    )
