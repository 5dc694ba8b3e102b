"""Experiments of the paper LongSSM, arXiv 2406.02080: carried states and length."""
