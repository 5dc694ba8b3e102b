"""Experiments on files that the user brings."""
