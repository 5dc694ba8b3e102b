"""Experiments on recall, copying and state tracking; one module per kind of task."""
