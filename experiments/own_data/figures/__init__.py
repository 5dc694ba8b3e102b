"""The figures of data of one's own: ``python -m experiments.own_data.figures.NAME``."""
