"""A task, a recurrence, a layer and an optimizer for the programs of ssm_jax."""
