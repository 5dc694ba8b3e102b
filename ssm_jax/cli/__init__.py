"""The programs: ``ssm-jax PROGRAM`` or ``python -m launch.PROGRAM``."""
