"""Tasks whose sequences are drawn and never end."""
