"""Configurations of experiments as plain data, in one ``ConfigDict``.

`spec` describes a class by its address and all its fields, or a function by its address
and the arguments that are given; `build` creates the object or binds the arguments.
In between, a config can be overridden from the command line
(``--config.model.d_model=64``), stored as JSON, compared, and read back from the file
alone. It can name the dataclasses and Flax modules of any module that can be imported;
`check_packages` refuses those of packages that a reader of the file has not named.
"""

from ssm_jax.config.compare import (
    changed_fields,
    check_packages,
    differences,
    flatten,
    packages_of,
    unknown_classes,
)
from ssm_jax.config.spec import (
    Config,
    accepts,
    address_of,
    build,
    check_arguments,
    from_json,
    import_target,
    spec,
    to_json,
)
from ssm_jax.config.values import nearest

__all__ = [
    "Config",
    "accepts",
    "address_of",
    "build",
    "changed_fields",
    "check_arguments",
    "check_packages",
    "differences",
    "flatten",
    "from_json",
    "import_target",
    "nearest",
    "packages_of",
    "spec",
    "to_json",
    "unknown_classes",
]
