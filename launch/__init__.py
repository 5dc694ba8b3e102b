"""Entry points: each parses its flags, calls ssm_jax and exits."""
