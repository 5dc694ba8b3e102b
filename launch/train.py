"""`ssm_jax.cli.train` as ``python -m launch.train``."""

from ssm_jax.cli import app, train

if __name__ == "__main__":
    app.run(train.main, train.define_flags)
