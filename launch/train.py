"""Trains an experiment; started again, it goes on where it was stopped.

    python -m launch.train --config=experiments/dlr/digits.py --workdir=runs/digits

``--config=FILE:variant`` takes a variant of the experiment, and any field of it is
overridden by its name, ``--config.model.n_layers=2``. The work folder keeps the
config, metrics and checkpoints; `launch.evaluate` needs nothing else.
"""

from absl import flags, logging
from ml_collections import config_flags

from launch import cli
from ssm_jax.training import train
from ssm_jax.training.workdir import check_parts

CONFIG = cli.define_config()
WORKDIR = flags.DEFINE_string(
    "workdir", None, "Folder of the run: new, or one to continue.", required=True
)
DATA_DIR = flags.DEFINE_string(
    "data_dir", None, "Folder of prepared data sets, for tasks that read one."
)


def main(argv):
    """Trains."""
    del argv
    config = CONFIG.value
    file = config_flags.get_config_filename(flags.FLAGS["config"])
    check_parts(config, f"--config={file}", "`get_config` returns all of them")
    if DATA_DIR.value is not None:
        if "data_dir" not in config.task:
            raise ValueError(
                f"`--data_dir` must be left out for {config.task.cls}, got "
                f"{DATA_DIR.value}; the task reads no data set."
            )
        config.task.data_dir = DATA_DIR.value
    measured = train(config, WORKDIR.value)
    logging.info("trained: %s, in %s", measured, WORKDIR.value)


if __name__ == "__main__":
    cli.run(main)
