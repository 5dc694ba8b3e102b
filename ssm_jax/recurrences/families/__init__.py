"""Base classes and functions that the recurrences share."""
