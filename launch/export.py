"""`ssm_jax.cli.export` as ``python -m launch.export``."""

from ssm_jax.cli import app, export

if __name__ == "__main__":
    app.run(export.main, export.define_flags)
