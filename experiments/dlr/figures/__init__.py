"""Figures of the atomic tasks: ``python -m experiments.dlr.figures.NAME``."""
