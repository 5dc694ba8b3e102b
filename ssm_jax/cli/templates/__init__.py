"""The experiments that ``ssm-jax new`` writes: a template and a guess for each kind."""
