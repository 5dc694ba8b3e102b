"""Zhang et al., Fourier Recurrent Units: curves, pixels, reviews, and the theory."""
