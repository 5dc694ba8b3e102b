"""Experiments of the paper on Fourier Recurrent Units, arXiv 1803.06585."""
