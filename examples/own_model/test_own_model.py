"""The contracts of ssm_jax, for what is defined here."""

from own_model.layer import GatedOutput
from own_model.recurrence import HGRU
from own_model.task import LastMarked

from ssm_jax import testing


def test_recurrence():
    """All methods, pieces, segments and padded sequences agree."""
    testing.check_recurrence(HGRU(d_state=3, lower_bound=0.5))


def test_layer():
    """So do those of the layer."""
    testing.check_layer(GatedOutput(HGRU(d_state=3)))


def test_task():
    """Batches are functions of their arguments, and have the shapes of the spec."""
    testing.check_task(LastMarked(length=9))
