"""Sequence models built on the recurrence ``h_t = a_t h_{t-1} + b_t``, in JAX.

The kernels, recurrences and layers are attributes of this package::

    import ssm_jax

    h, h_last = ssm_jax.linear_recurrence(a, b)
    dlr = ssm_jax.DLR(d_state=64)

A name is imported from its package when it is first used, so ``import ssm_jax`` alone
imports neither JAX nor Flax. No other package of ssm_jax is lazy.
"""

import importlib

__version__ = "0.2.0"

_SUBMODULES = (
    "aot",
    "config",
    "evaluation",
    "interop",
    "kernels",
    "layers",
    "models",
    "plots",
    "recurrences",
    "sharding",
    "tasks",
    "training",
    "types",
)

# The names of each package that are public here too. `__init__.pyi` says the same to
# type checkers; a test compares both with the `__all__` of the packages.
_PUBLIC = {
    "kernels": [
        "LogDecay",
        "SolverStats",
        "bidirectional_convolution",
        "causal_convolution",
        "chosen_method",
        "compiling_for",
        "decay_powers",
        "final_state",
        "linear_attention",
        "linear_recurrence",
        "modal_kernel",
        "n_step_decay",
        "nonlinear_recurrence",
        "to_log_decay",
    ],
    "recurrences": [
        "CES",
        "DLR",
        "DSS",
        "FRU",
        "GRU",
        "LRU",
        "LSTM",
        "RNN",
        "S4",
        "S4D",
        "S5",
        "SRU",
        "BoundedEigenvalues",
        "ChunkedForm",
        "DampedEMA",
        "ExponentialSmoothing",
        "GatedLinearAttention",
        "InputDependent",
        "MIMOModes",
        "Nonlinear",
        "ParamGroup",
        "Recurrence",
        "SGConv",
        "SISOModes",
        "SelectiveSSM",
        "TimeInvariant",
        "convolution_kernel",
        "diagonalized",
        "kronecker",
        "log_spaced",
        "to_real_readout",
    ],
    "layers": [
        "ETSMLP",
        "MLP",
        "Attention",
        "ChannelMixing",
        "ExpertChoiceMLP",
        "LabelledParam",
        "Linear",
        "Mamba",
        "Recurrent",
        "RecurrentLayer",
        "RotaryAttention",
        "RowDropout",
        "ShortConvolution",
        "row_keys",
        "rows_from",
    ],
    "sharding": [
        "LengthSharded",
        "sharded_length",
    ],
    "evaluation": [
        "restore",
    ],
}

_PACKAGE_OF = {name: package for package, names in _PUBLIC.items() for name in names}

# Type checkers read the stub in its place.
__all__ = ["__version__", *_SUBMODULES, *_PACKAGE_OF]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    """Imports a submodule or a public name when it is first used (PEP 562)."""
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _PACKAGE_OF:
        package = importlib.import_module(f"{__name__}.{_PACKAGE_OF[name]}")
        # Kept here, so that the next use does not call this function.
        value = globals()[name] = getattr(package, name)
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Lists the public names, imported or not."""
    return sorted({*globals(), *__all__})
