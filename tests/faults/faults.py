"""The faults that tests must find.

Each changes what a program does for ordinary input on a CPU, and still imports.
"""

from tests.faults.fault import Fault
from tests.faults.model import MODEL
from tests.faults.pipeline import PIPELINE

__all__ = ["FAULTS", "Fault"]

FAULTS: tuple[Fault, ...] = MODEL + PIPELINE
