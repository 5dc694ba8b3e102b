"""Trains an experiment, or continues a run from its last checkpoint.

    python -m launch.train --config=experiments/dlr/digits.py --workdir=runs/digits

``--config=FILE:name=value,...`` selects a variant of the experiment, and
``--config.model.n_layers=2`` overrides any field of its config. The work dir holds the
config, the metrics and the checkpoints; `ssm_jax.cli.evaluate` needs nothing else.
"""

from absl import flags, logging
from ml_collections import config_flags

from ssm_jax.cli.config_file import define_config
from ssm_jax.training import train
from ssm_jax.training.workdir import check_parts


def define_flags() -> None:
    """Defines the flags of this program."""
    define_config()
    flags.DEFINE_string(
        "workdir", None, "Work dir of a new run, or of one to continue.", required=True
    )
    flags.DEFINE_string(
        "data_dir", None, "Directory of prepared data sets (default: TFDS's own)."
    )


def main(argv):
    """Trains the experiment of ``--config`` in ``--workdir``."""
    del argv
    workdir, data_dir = flags.FLAGS.workdir, flags.FLAGS.data_dir
    config = flags.FLAGS.config
    file = config_flags.get_config_filename(flags.FLAGS["config"])
    # Checked here too, because the error can name the file.
    check_parts(config, f"--config={file}", "`get_config` returns all of them")
    if data_dir is not None:
        if "data_dir" not in config.task:
            raise ValueError(
                f"`--data_dir` must be left out for {config.task.cls}, got "
                f"{data_dir}; the task reads no data set."
            )
        # Set in the config, so that the work dir records where the data were.
        config.task.data_dir = data_dir
    measured = train(config, workdir)
    logging.info("trained: %s, in %s", measured, workdir)
