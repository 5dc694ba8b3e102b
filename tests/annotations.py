"""The check of annotations under `--full`, which the hook of `jaxtyping` names."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
"""Whole numbers are floats, as they are for pyright."""
