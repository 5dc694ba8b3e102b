"""Tasks whose sequences are drawn: endless noise, or finite sets that a seed names."""
