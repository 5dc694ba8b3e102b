"""`ssm_jax.cli.report` as ``python -m launch.report``."""

from ssm_jax.cli import app, report

if __name__ == "__main__":
    app.run(report.main, report.define_flags)
