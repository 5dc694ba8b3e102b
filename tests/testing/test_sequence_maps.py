"""The checks for recurrences and layers of users: what they accept and refuse.

Each wrong recurrence has one fault; the message must name the property that it breaks.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from ssm_jax import testing
from ssm_jax.layers import Recurrent
from ssm_jax.recurrences import ExponentialSmoothing, Recurrence
from tests.layers import cases as layers
from tests.recurrences.table import ROWS
from tests.tiers import tiered

EMA = ExponentialSmoothing(decay_min=0.3, decay_max=0.6)


@dataclasses.dataclass(frozen=True)
class Wrapped(Recurrence):
    """A correct recurrence, in which subclasses break one property."""

    inner: Recurrence = EMA

    def init(self, key, d_in):
        return self.inner.init(key, d_in)

    def initial_state(self, batch_shape, d_in):
        return self.inner.initial_state(batch_shape, d_in)

    def apply(self, params, x, state=None, **options):
        return self.inner.apply(params, x, state, **options)


class DropsState(Wrapped):
    def apply(self, params, x, state=None, **options):
        return super().apply(params, x, None, **options)


class IgnoresMask(Wrapped):
    def apply(self, params, x, state=None, *, mask=None, **options):
        return super().apply(params, x, state, **options)


class IgnoresReset(Wrapped):
    def apply(self, params, x, state=None, *, reset=None, **options):
        return super().apply(params, x, state, **options)


class LooksAhead(Wrapped):
    def apply(self, params, x, state=None, **options):
        y, last = super().apply(params, x, state, **options)
        return jnp.roll(y, -1, -2), last


class MixesRows(Wrapped):
    def apply(self, params, x, state=None, **options):
        y, last = super().apply(params, x, state, **options)
        return y - y.mean(0, keepdims=True), last


class OneMethodDiffers(Wrapped):
    def apply(self, params, x, state=None, *, method="auto", **options):
        y, last = super().apply(params, x, state, method=method, **options)
        return y * (1.01 if method == "associative" else 1.0), last


class GradientDiffers(Wrapped):
    def apply(self, params, x, state=None, *, method="auto", **options):
        if method == "associative":
            x = jax.lax.stop_gradient(x)
        return super().apply(params, x, state, method=method, **options)


class WidensOutputs(Wrapped):
    def apply(self, params, x, state=None, **options):
        y, last = super().apply(params, x, state, **options)
        return y.astype(jnp.float32), last


class LowPrecisionState(Wrapped):
    def apply(self, params, x, state=None, **options):
        y, last = super().apply(params, x, state, **options)
        return y, last.astype(x.dtype)


class RandomParameters(Wrapped):
    def init(self, key, d_in):
        noise = np.random.default_rng().normal(size=d_in)
        return {"logit_smoothing": jnp.asarray(noise, jnp.float32)}


class UnknownGroup(Wrapped):
    def groups(self):
        return {"rate": self.inner.groups()}


FAULTS = {
    "DropsState": (DropsState, "single steps"),
    "IgnoresMask": (IgnoresMask, "padded steps"),
    "IgnoresReset": (IgnoresReset, "`reset`"),
    "LooksAhead": (LooksAhead, "later inputs"),
    "MixesRows": (MixesRows, "rows of a batch"),
    "OneMethodDiffers": (OneMethodDiffers, "method='associative'"),
    "GradientDiffers": (GradientDiffers, "method='associative'"),
    "WidensOutputs": (WidensOutputs, "dtype of the inputs"),
    "LowPrecisionState": (LowPrecisionState, "states must be float32"),
    "RandomParameters": (RandomParameters, "`init`"),
    "UnknownGroup": (UnknownGroup, "`groups`"),
}


@pytest.mark.parametrize(
    ("fault", "rule"),
    tiered(FAULTS, ["UnknownGroup"], full=["UnknownGroup", "DropsState"], unpack=True),
)
def test_fault_is_named(fault, rule):
    with pytest.raises(AssertionError) as refusal:
        testing.check_recurrence(fault(), length=5)
    message = str(refusal.value)
    assert message.startswith(f"{fault.__name__}: ")
    assert rule in message
    assert "\n" not in message


@pytest.mark.parametrize("row", tiered(ROWS, 0, full=()))
def test_recurrences_of_the_library_keep_the_contract(row):
    testing.check_recurrence(row.recurrence, d_in=row.width)


@pytest.mark.parametrize("row", tiered(layers.ROWS, 0, full=()))
def test_layers_of_the_library_keep_the_contract(row):
    testing.check_layer(row.layer)


class GatesPadding(Recurrent):
    """A correct layer but for its gate, whose parameter gets the NaN of padding."""

    @nn.compact
    def __call__(self, x, state=None, **options):
        y, state = super().__call__(x, state, **options)
        return y * nn.Dense(x.shape[-1])(x), state


@pytest.mark.full
def test_fault_of_a_layer_is_named():
    with pytest.raises(AssertionError, match=r"^GatesPadding: padded .* `jnp\.where"):
        testing.check_layer(GatesPadding(EMA), length=5)


def test_length_must_suffice():
    with pytest.raises(ValueError, match="at least 4"):
        testing.check_recurrence(EMA, length=3)
