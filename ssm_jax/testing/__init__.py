"""The contracts of recurrences, layers and tasks, as checks for those of your own.

Each raises an ``AssertionError`` that names the property that does not hold, by how
much, and what usually fixes it::

    from ssm_jax import testing

    def test_my_recurrence():
        testing.check_recurrence(MyRecurrence(d_state=4))
"""

from ssm_jax.testing.sequence_maps import check_layer, check_recurrence
from ssm_jax.testing.tasks import check_task

__all__ = ["check_layer", "check_recurrence", "check_task"]
