"""The methods of `"auto"` follow the platform that is compiled for."""

import jax
import jax.numpy as jnp
import pytest

from ssm_jax.kernels import chosen_method, compiling_for
from ssm_jax.kernels.platforms import on_each_platform, target_platform
from ssm_jax.recurrences import DLR, GRU
from tests.tiers import tiered

B = jnp.ones((2, 5, 3))


def test_context_names_the_platform_and_ends():
    before = target_platform()
    with compiling_for("tpu"):
        assert target_platform() == "tpu" and chosen_method(B) == "associative"
        with compiling_for("cpu"):
            assert chosen_method(B) == "sequential"
        assert chosen_method(B) == "associative"
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
    text = exported(jnp.ones((1, 32, 2))).mlir_module()
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
    of_cpu, of_others = operations(apply(on_cpu)), operations(apply(elsewhere))
    assert of_cpu != of_others
    assert operations(auto, "cpu") == of_cpu
    assert operations(auto, "cuda") == operations(auto, "tpu") == of_others
