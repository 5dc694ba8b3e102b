"""Experiments of the paper on ETSMLP, arXiv 2403.17445: tables 1 to 4."""
