"""The methods of `"auto"` follow the platform that is compiled for."""

import functools
import re

import jax
import jax.numpy as jnp
import pytest

from ssm_jax.kernels import chosen_method, compiling_for
from ssm_jax.kernels.platforms import on_each_platform, target_platform
from ssm_jax.recurrences import DLR, GRU, S5, SelectiveSSM
from tests.tiers import tiered

B = jnp.ones((2, 5, 3))


def test_context_names_the_platform_and_ends():
    before = target_platform()
    with compiling_for("tpu"):
        assert target_platform() == "tpu" and chosen_method(B) == "chunked"
        with compiling_for("cpu"):
            assert chosen_method(B) == "sequential"
        assert chosen_method(B) == "chunked"
    assert target_platform() == before


def test_default_device_is_followed(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert chosen_method(B) == "associative"
    for device in ("cpu", jax.local_devices(backend="cpu")[0]):
        with jax.default_device(device):
            assert chosen_method(B) == "sequential"


def test_function_is_traced_anew_for_another_platform():
    seen = []
    traced = jax.jit(lambda x: seen.append(target_platform()) or x)
    for platform in ("cpu", "tpu", "cpu"):
        with compiling_for(platform):
            traced(B)
    assert seen == ["cpu", "tpu"]


def operations(function, platform="cpu"):
    """How often each kind of costly operation is lowered for a platform."""
    exported = jax.export.export(jax.jit(function), platforms=[platform])
    text = exported(jnp.ones((1, 1024, 2))).mlir_module()
    return [text.count(f"stablehlo.{name}") for name in ("while", "fft", "dot_general")]


CASES = {
    "gru": (GRU(d_state=2), "sequential", "associative"),
    "dlr": (DLR(d_state=4), "chunked", "fft"),
}


@pytest.mark.parametrize(
    ("recurrence", "on_cpu", "elsewhere"),
    tiered(CASES, fast=0, full=1, unpack=True),
)
def test_export_has_the_operations_of_its_platform(recurrence, on_cpu, elsewhere):
    params = recurrence.init(jax.random.key(0), 2)

    def apply(method):
        return lambda x: recurrence.apply(params, x, method=method)[0]

    auto = on_each_platform(apply("auto"), ("cpu", "cuda", "tpu"))
    of_cpu = operations(apply(on_cpu))
    assert operations(auto, "cpu") == of_cpu
    for platform in ("cuda", "tpu"):
        # Convolutions of TPUs have no FFTs.
        with compiling_for(platform):
            expected = operations(apply(elsewhere), platform)
        assert operations(auto, platform) == expected != of_cpu


# The methods of one step and of a few, on accelerators.
SHORT = {
    "dlr": (DLR(d_state=4), "sequential", "chunked"),
    "s5": (S5(d_state=4, blocks=1), "sequential", "associative"),
    "selective": (SelectiveSSM(d_state=4), "sequential", "associative"),
}


@pytest.mark.parametrize(
    ("recurrence", "of_one", "of_few"), tiered(SHORT, unpack=True, full=3)
)
def test_short_sequences_on_accelerators(recurrence, of_one, of_few):
    """Decoding is one step of the scan, and no program grows with the modes."""
    params = recurrence.init(jax.random.key(0), 2)

    def program(length, method):
        apply = functools.partial(recurrence.apply, method=method)
        with compiling_for("cuda"):
            jaxpr = jax.make_jaxpr(apply)(params, jnp.ones((3, length, 2)))
        return re.sub(r"0x[0-9a-f]+", "", str(jaxpr))

    assert program(1, "auto") == program(1, of_one) != program(1, of_few)
    assert program(5, "auto") == program(5, of_few) != program(5, of_one)
