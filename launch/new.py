"""`ssm_jax.cli.new` as ``python -m launch.new``."""

from ssm_jax.cli import app, new

if __name__ == "__main__":
    app.run(new.main, new.define_flags)
