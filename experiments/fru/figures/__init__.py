"""The figures of the paper: ``python -m experiments.fru.figures.NAME``."""
