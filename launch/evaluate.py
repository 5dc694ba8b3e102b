"""`ssm_jax.cli.evaluate` as ``python -m launch.evaluate``."""

from ssm_jax.cli import app, evaluate

if __name__ == "__main__":
    app.run(evaluate.main, evaluate.define_flags)
