"""`ssm_jax.cli.prepare` as ``python -m launch.prepare``."""

from ssm_jax.cli import app, prepare

if __name__ == "__main__":
    app.run(prepare.main, prepare.define_flags)
