"""Trains an experiment, or continues a run from its last checkpoint.

    ssm-jax train --config=experiments/dlr/digits.py --workdir=runs/digits

``--config=FILE:name=value,...`` selects a variant of the experiment, and
``--config.model.n_layers=2`` overrides any field of its config. The work dir holds the
config, the metrics and the checkpoints; `ssm_jax.cli.evaluate` needs nothing else.

``--writers=tensorboard,wandb`` sends the metrics there too. ``--profile_steps=10,20``
writes a trace of these steps by `jax.profiler` to ``profile`` in the work dir, without
those that an earlier start took; TensorBoard's profile plugin, XProf and Perfetto show
it. ``--debug_nans`` ends the run at the first operation whose result has a NaN and
names it and its line; with it, steps are taken on one device and are slower.

Several processes train one run if each is started with the same flags and
``--coordinator_address=HOST:PORT --num_processes=N --process_id=I``; under Slurm, Open
MPI, and on Cloud TPU these three are not needed. They share the work dir. If one is
lost, the others end with status 134 within the seconds of ``--heartbeat_timeout``.

``--dry_run`` trains nothing and needs no work dir: it prints the parameters, memory and
operations of a step and the first batch, and ``--picture=FILE`` draws that batch.
"""

import jax
from absl import flags, logging
from ml_collections import config_flags

from ssm_jax.cli.config_file import define_config, set_data_dir
from ssm_jax.cli.processes import connect, define_processes, exit_at_error
from ssm_jax.cli.run_flags import PICTURES, check_writable, define_data
from ssm_jax.config import build, packages_of
from ssm_jax.evaluation import restore
from ssm_jax.evaluation.run import calibrate
from ssm_jax.tasks import SeriesTask
from ssm_jax.training import train
from ssm_jax.training.hosts import is_first
from ssm_jax.training.workdir import check_parts
from ssm_jax.training.writers import WRITERS


def define_flags() -> None:
    """Defines the flags of this program."""
    define_config()
    flags.DEFINE_string(
        "workdir", None, "Work dir of a new run, or of one to continue."
    )
    define_data("Directory of prepared data sets (default: TFDS's own).")
    flags.DEFINE_list("writers", [], f"Of {', '.join(WRITERS)}: metrics go there too.")
    flags.DEFINE_list("profile_steps", [], "First and last step of a trace.")
    flags.DEFINE_bool("debug_nans", False, "Find the operation that makes a NaN.")
    flags.DEFINE_bool("dry_run", False, "Print what the run would be; write nothing.")
    flags.DEFINE_string("picture", None, "With --dry_run: draw the batch to this file.")
    define_processes()


def main(argv):
    """Trains the experiment of ``--config`` in ``--workdir``."""
    del argv
    workdir, data_dir = flags.FLAGS.workdir, flags.FLAGS.data_dir
    dry, picture = flags.FLAGS.dry_run, flags.FLAGS.picture
    config = flags.FLAGS.config
    if picture and not dry:
        raise ValueError(
            f"`--picture` must be left out without --dry_run, got {picture}; "
            "`ssm-jax report` draws the figures of a run."
        )
    check_writable("picture", picture, PICTURES)
    file = config_flags.get_config_filename(flags.FLAGS["config"])
    # Checked here too, because the error can name the file.
    check_parts(config, f"--config={file}", "`get_config` returns all of them")
    set_data_dir(config, data_dir)
    if dry:
        # Imported here, because training needs no matplotlib.
        from ssm_jax.cli.dry_run import dry_run

        print(dry_run(config, picture))
        return
    if workdir is None:
        raise ValueError(
            "`--workdir` must name the directory of the run, got None; "
            "--workdir=runs/a is an example, and --dry_run needs none."
        )
    if flags.FLAGS.debug_nans:
        jax.config.update("jax_debug_nans", True)
    allow = {"allow_changed_data": flags.FLAGS.allow_changed_data}
    with exit_at_error():
        connect()
        measured = train(
            config,
            workdir,
            writers=flags.FLAGS.writers,
            profile_steps=_two_steps(flags.FLAGS.profile_steps),
            **allow,
        )
        if is_first() and _forecasts(config):
            # While the data of the training are there.
            packages = packages_of(config)
            calibrate(workdir, restore(workdir, packages=packages, **allow))
    logging.info("trained: %s, in %s", measured, workdir)


def _forecasts(config):
    """Whether the task of a config is a forecast."""
    task = build(config.task, "config.task")
    return isinstance(task, SeriesTask) and task.classes is None


def _two_steps(words):
    """The first and the last step, or None."""
    if not words:
        return None
    if len(words) != 2 or not all(word.strip().isdecimal() for word in words):
        raise ValueError(
            f"`--profile_steps` must be two steps, got {','.join(words)}; 10,20 is an "
            "example."
        )
    return int(words[0]), int(words[1])
