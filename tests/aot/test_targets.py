"""Targets of ahead-of-time compilation, and what is refused."""

import re

import pytest

from ssm_jax import aot
from ssm_jax.aot import compilers
from tests.bad_inputs import refuses

GIB = 2**30


@pytest.mark.parametrize(
    ("text", "n_devices", "topology", "memory"),
    [
        ("gpu:h100:8", 8, "1x1x8", 84_942_979_072),
        ("gpu:h200:8", 8, "1x1x8", 151_397_597_184),
        ("gpu:a100:2x8", 16, "1x2x8", 85_100_068_864),
        ("tpu:v5e:4x4", 16, "v5e:4x4", 16 * GIB),
        ("tpu:v6e:2x4", 8, "v6e:2x4", 32 * GIB),
        ("tpu:v4:2x2x2", 8, "v4:2x2x2", 32 * GIB),
        ("gpu:b200:8", 8, "1x1x8", 191_514_411_008),
        ("gpu:gb200:18x4", 72, "1x18x4", 197_897_748_480),
        ("tpu:v5p:2x2x2", 8, "v5p:2x2x2", 95 * GIB),
    ],
)
def test_target_is_its_devices_and_their_topology(text, n_devices, topology, memory):
    target = aot.parse_target(text)
    assert target.n_devices == n_devices
    assert target.topology_name == topology
    assert target.device.memory_bytes == memory


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("h100", "gpu or tpu"),
        ("cpu:x86:1", "gpu or tpu"),
        ("gpu:v5e:8", "a100, b200, gb200, h100, h200"),
        ("tpu:v9:2x2", "v4, v5e, v5p, v6e"),
        ("gpu:h100", "N devices"),
        ("gpu:h100:0", "N devices"),
        ("gpu:h100:2x2x2", "N devices"),
        ("tpu:v5e:8", "2 sizes"),
        ("tpu:v4:2x2", "3 sizes"),
    ],
)
def test_other_targets_are_refused(text, rule):
    with refuses("target`", text, rule=rule):
        aot.parse_target(text)


@pytest.mark.parametrize("text", ["gpu:h100:8", "tpu:v5e:2x4"])
def test_missing_compiler_is_named_with_the_command_that_installs_it(text, monkeypatch):
    missing = {"cuda": {"no_such_module": "a-package"}}
    monkeypatch.setattr(compilers, "_PACKAGES", missing | {"tpu": missing["cuda"]})
    with refuses("target`", text, rule="installed") as refusal:
        aot.prepare(aot.parse_target(text))
    assert "a-package" in str(refusal.value)
    assert "pip install 'ssm_jax[compile]'" in str(refusal.value)


def test_configuration_of_a_gpu_is_a_text_protocol_buffer():
    details = aot.known_devices()["h100"].details
    text = compilers._text_proto(details)
    assert re.search(r"gpu_device_info \{ core_count: 132 .* \}", text)
    assert "cuda_compute_capability { major: 9 minor: 0 }" in text


@pytest.mark.parametrize("largest", [0, 8, 16, 40, 96, 8192])
@pytest.mark.parametrize("first", [8, 64, 4096])
def test_largest_batch_is_found(largest, first):
    tried = []

    def fits(n):
        tried.append(n)
        return n <= largest

    found = aot.largest_batch(fits, unit=8, first=first)
    assert (found or 0) <= largest and (found is None) == (largest == 0)
    assert largest - (found or 0) <= (largest // 64 if largest > 64 * 8 else 0)
    assert len(tried) == len(set(tried)) <= 20
    assert all(n > 0 and n % 8 == 0 for n in tried)


def test_largest_batch_ends_where_all_fit():
    assert aot.largest_batch(lambda n: True, unit=8, first=8) == 2**20


@pytest.mark.parametrize(("limit", "largest"), [(1437, 1432), (100, 96), (7, None)])
def test_no_batch_above_the_limit_is_tried(limit, largest):
    tried = []
    found = aot.largest_batch(lambda n: not tried.append(n), 8, first=128, limit=limit)
    assert found == largest
    assert all(n <= limit for n in tried)
