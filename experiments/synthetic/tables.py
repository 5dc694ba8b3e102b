"""What models learn of recall, copying and state tracking."""

from experiments.page import Paper
from experiments.synthetic.claims import CLAIMS

PAPER = Paper("Recall, copying and state tracking", "", tuple(CLAIMS.values()))
"""A section for each claim."""
