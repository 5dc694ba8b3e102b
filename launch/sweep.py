"""`ssm_jax.cli.sweep` as ``python -m launch.sweep``."""

from ssm_jax.cli import app, sweep

if __name__ == "__main__":
    app.run(sweep.main, sweep.define_flags)
