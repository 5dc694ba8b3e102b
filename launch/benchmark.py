"""`benchmarks` as ``python -m launch.benchmark``."""

from benchmarks.__main__ import define_flags, main
from ssm_jax.cli import app

if __name__ == "__main__":
    app.run(main, define_flags)
