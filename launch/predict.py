"""`ssm_jax.cli.predict` as ``python -m launch.predict``."""

from ssm_jax.cli import app, predict

if __name__ == "__main__":
    app.run(predict.main, predict.define_flags)
