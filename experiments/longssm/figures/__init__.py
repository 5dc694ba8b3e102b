"""The figures of the paper: ``python -m experiments.longssm.figures.NAME``."""
