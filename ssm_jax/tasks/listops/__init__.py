"""ListOps: nested list operations with a one-digit result."""
