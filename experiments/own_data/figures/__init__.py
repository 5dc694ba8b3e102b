"""The figures of the paper: ``python -m experiments.dlr.figures.NAME``."""
