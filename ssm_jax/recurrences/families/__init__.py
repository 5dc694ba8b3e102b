"""Code shared by the recurrences: evaluation by family, padding, initialization."""
