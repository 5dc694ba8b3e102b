"""Sequence models built on the recurrence ``h_t = a_t h_{t-1} + b_t``, in JAX.

The kernels, recurrences and layers are attributes of this package::

    import ssm_jax

    h, h_last = ssm_jax.linear_recurrence(a, b)
    dlr = ssm_jax.DLR(d_state=64)

A name is imported from its package when it is first used, so ``import ssm_jax`` alone
imports neither JAX nor Flax. No other package of ssm_jax is lazy. `__init__.pyi` lists
the names, for type checkers too.
"""

import lazy_loader

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ += ["__version__"]
