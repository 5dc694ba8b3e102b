"""The figures of the paper: ``python -m experiments.etsmlp.figures.NAME``."""
