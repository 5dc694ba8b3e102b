"""Sequence models built on the recurrence ``h_t = a_t h_{t-1} + b_t``, in JAX."""
