"""Training: the state, the step, the loop and its checkpoints."""
