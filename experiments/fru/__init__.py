"""Zhang et al., Fourier Recurrent Units: mixtures of curves."""
