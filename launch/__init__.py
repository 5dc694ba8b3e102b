"""Runs the programs from a checkout: ``python -m launch.train``; and shell scripts."""

import sys

from ssm_jax.cli.startup import exit_on_interrupt, open_streams

# While `python -m` looks for a module of a package, "-m" stands for its path.
if sys.argv[:1] == ["-m"]:
    exit_on_interrupt()
    open_streams()
