"""`ssm_jax.cli.compile` as ``python -m launch.compile``."""

from ssm_jax.cli import app, compile

if __name__ == "__main__":
    app.run(compile.main, compile.define_flags)
