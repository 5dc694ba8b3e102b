"""Configurations of experiments as plain data, in one ``ConfigDict``.

`spec` describes a class of ssm_jax by its address and all its fields; `build` creates
the object. In between, a config can be overridden from the command line
(``--config.model.d_model=64``), stored as JSON, compared, and read back from the file
alone. A config can name only classes of ssm_jax.
"""

from ssm_jax.config.compare import (
    changed_fields,
    differences,
    flatten,
    unknown_classes,
)
from ssm_jax.config.spec import Config, build, from_json, spec, to_json
from ssm_jax.config.values import nearest

__all__ = [
    "Config",
    "build",
    "changed_fields",
    "differences",
    "flatten",
    "from_json",
    "nearest",
    "spec",
    "to_json",
    "unknown_classes",
]
