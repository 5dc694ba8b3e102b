"""`ssm_jax.cli.generate` as ``python -m launch.generate``."""

from ssm_jax.cli import app, generate

if __name__ == "__main__":
    app.run(generate.main, generate.define_flags)
