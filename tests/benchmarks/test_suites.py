"""Every suite at a size at which only its arithmetic can go wrong."""

import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import (
    accelerators,
    dlr,
    forecasts,
    kernels,
    language,
    lengths,
    limits,
    matrix,
    meshes,
    peers,
    roofline,
    training_steps,
)
from benchmarks.__main__ import SUITES
from benchmarks.measurement import Row, measure, relative_error, time_in_turns
from ssm_jax.recurrences import CES
from tests.tiers import tiered

# Compiled on the device of the tests, as if for a GPU.
COMPILER = {"_load_compiler": lambda target: (jax.devices()[0], "cuda")}


class Case(NamedTuple):
    """A suite at a small size.

    Attributes:
      length: The length.
      n_rows: The number of rows.
      options: Further arguments of the suite.
      module: Module of ``patched``.
      patched: Values of names in the module during the test.
      check: Whether the rows are what they must be.
    """

    length: int
    n_rows: int
    options: Mapping[str, Any] = {}
    module: Any = None
    patched: Mapping[str, Any] = {}
    check: Callable[[Sequence[Row]], bool] = lambda rows: True


def few_programs(length, **sizes):
    """Two of the programs that are timed or compiled, small."""
    programs = PROGRAMS(length, rows=2, width=6)
    return {what: programs[what] for what in ("time-invariant, real", "selective")}


PROGRAMS = accelerators.programs
SIZES = {"batch": 1, "width": 8}


def is_compared(row: Row) -> bool:
    """Whether a row of a peer has its outputs, its gradients and the ratios."""
    return (
        row["difference"] < 1e-5
        and row["gradient_difference"] < 1e-4
        and row["forward_ratio"] == row["forward_s"] / row["forward_peer_s"]
        and row["grad_ratio_min"] == row["grad_min_s"] / row["grad_peer_min_s"]
    )


CASES = {
    "powers": Case(
        1024,
        4,
        check=lambda rows: (
            rows[0]["error"] == 0
            and rows[0]["left"] <= 1.1 * rows[1]["left"]
            and rows[1]["error"] < 1e-6 < rows[3]["error"] < rows[2]["error"]
            and all(row["left"] < 1e-5 for row in rows)
        ),
    ),
    "stability": Case(
        24,
        27,
        {"batch": 1},
        check=lambda rows: (
            {row["what"] for row in rows} == {"RNN", "GRU", "FRU"}
            and rows[0]["exponent"] < 0 < rows[8]["exponent"]
            and all(row["growth"] == 24 * row["exponent"] for row in rows)
        ),
    ),
    "clock": Case(
        4096,
        16,
        check=lambda rows: all(
            row["accuracy"] == 1 and row["until"] == 4096 for row in rows
        ),
    ),
    "recurrence": Case(
        5, 7, check=lambda rows: all(row["error"] < 1e-6 for row in rows)
    ),
    "scans": Case(
        12,
        4,
        {"width": 3},
        check=lambda rows: all(
            row["difference"] < 1e-6
            and row["forward_ratio"] == row["forward_ms"] / row["forward_plain_ms"]
            and row["grad_bytes_ratio"] > 0
            for row in rows
        ),
    ),
    "convolutions": Case(
        1,
        9,
        SIZES,
        kernels,
        {"MODES": (1,)},
        lambda rows: {row["what"] for row in rows} == {"DLR", "S4", "SGConv"},
    ),
    "selective": Case(
        12,
        1,
        {},
        peers,
        {"SELECTIVE_SIZES": {12: (1, 8)}},
        lambda rows: is_compared(rows[0]) and rows[0]["grad_target"] == 0.5,
    ),
    "roofline": Case(
        9,
        2 * 3 * 2,
        {},
        roofline,
        {"COPY_BYTES": 2**20, "programs": few_programs},
        lambda rows: all(
            row["copy_ms"] > 0
            and row["error"] < 1e-6
            and row["predicted_ms"] is None  # On a CPU nothing is predicted.
            and (row["gradient_error"] or 0) < 1e-5
            and (row["gradient_error"] is None) == (row["pass"] == "value")
            for row in rows
        ),
    ),
    "limits": Case(
        64,
        2 * 10,
        {"batch": 1, "width": 64},
        limits,
        {"SIDE": 8, "_KERNELS": 1, "bandwidth": lambda repeats: 1e9},
        lambda rows: (
            # A multiplication and an addition; with the gradient five operations.
            [rows[0]["elementwise"], rows[1]["elementwise"]] == [0.008192, 0.020480]
            and rows[0]["copy_ms"] == rows[0]["mb"]
            and all(row["share"] > 0 and row["bound"] for row in rows)
        ),
    ),
    "costs": Case(
        8,
        2 * 3 + 3 + 2,
        {"target": "gpu:h100:1"},
        accelerators,
        COMPILER | {"ROWS": 2, "WIDTH": 4, "CHANNELS": 2, "MODES": (1,)},
        lambda rows: all(row["passes"] > 0 and row["kernels"] > 0 for row in rows),
    ),
    "pallas": Case(
        8,
        2 * 2,
        {"target": "gpu:h100:1", "methods": ["associative"]},
        accelerators,
        COMPILER | {"programs": few_programs},
        lambda rows: all(row["ratio"] > 0 for row in rows),
    ),
    "matrix_costs": Case(
        40,
        3 * 2 * 2,
        {"target": "gpu:h100:1", "methods": ["auto"]},
        accelerators,
        # No file is written: the compiler is that of the tests.
        COMPILER | {"ROWS": 2, "HEADS": 2, "_add_options": lambda *_: None},
        lambda rows: all(
            row["ratio"] > 0
            and 0.8 < row["flops_ratio"] < 4
            and row["collectives"] == 0
            for row in rows
        ),
    ),
    "peers": Case(
        24,
        8,
        {"batch": 2, "width": 8, "n": 4},
        peers,
        {"HAS_TORCH": False},
        lambda rows: all(map(is_compared, rows)),
    ),
    "matrix": Case(
        64,
        3 * 3,
        {"batch": 1, "width": 16},
        matrix,
        {"SIZES": (8,)},
        lambda rows: all(
            row["difference"] < 1e-5
            and row["gradient_difference"] < 1e-4
            and row["grad_ratio"] == row["grad_ms"] / row["grad_peer_ms"]
            for row in rows
        ),
    ),
    "training_steps": Case(
        12,
        1,
        {"batch": 2, "width": 16, "n_layers": 2},
        training_steps,
        {"LAYERS": {"CES": training_steps.LAYERS["CES"]}},
        lambda rows: (
            rows[0]["difference"] < 1e-5
            and rows[0]["of_plain"] == rows[0]["ours_s"] / rows[0]["plain_s"]
            and rows[0]["of_identity"] == rows[0]["ours_s"] / rows[0]["identity_s"]
            and rows[0]["of_scanned"] == rows[0]["ours_s"] / rows[0]["scanned_s"]
        ),
    ),
    "meshes": Case(
        12,
        5,  # On eight devices, those of the slower tiers.
        {"batch": 8, "width": 16, "layers": 2},
        meshes,
        {"VOCABULARY": 16},
        lambda rows: all(row["step_ms"] > 0 and row["state_mib"] > 0 for row in rows),
    ),
    "depth": Case(
        12,
        2 * 2 * 2,
        {"batch": 2, "width": 16},
        training_steps,
        {"DEPTH_MODELS": ("CES",), "DEPTHS": (2, 3)},
        lambda rows: (
            [row["layers"] for row in rows] == 4 * [2, 3]
            and rows[1]["of_first"]
            == rows[1]["compile_cpu_s"] / rows[0]["compile_cpu_s"]
            and 0 < rows[0]["temp_bytes"] < rows[1]["temp_bytes"]
        ),
    ),
    "lengths": Case(
        16,
        1,
        {"width": 2},
        lengths,
        {"SHORTEST": 8, "LAYERS": {"CES": CES()}},
        lambda rows: (
            rows[0]["grad_ratio"] == rows[0]["grad_ns"] / rows[0]["forward_ns"]
        ),
    ),
    "iterations": Case(
        12,
        5,
        {"batch": 1, "frequencies": 3},
        check=lambda rows: all(
            row["converged"] and 1 < row["iterations"] <= 14 and row["error"] < 1e-5
            for row in rows
        ),
    ),
    "long_shift": Case(
        256,
        1,
        check=lambda rows: rows[0]["states"] == 32 and rows[0]["left"] < 1e-8,
    ),
    "throughput": Case(
        8,
        4,
        {"width": 64, "n_layers": 1},
        check=lambda rows: all(row["tokens_a_second"] > 0 for row in rows),
    ),
    "forecasts": Case(
        400,
        1,
        {"seeds": 1, "steps": 1},
        forecasts,
        {
            "GENERATED": {"random walk": forecasts.GENERATED["random walk"]},
            "_real": dict,
        },
        lambda rows: rows[0]["to_linear"] == 1 and 0.5 < rows[0]["coverage"] <= 1,
    ),
    "startup": Case(
        2,
        7,
        check=lambda rows: (
            rows[0]["target"] is None
            and all(0 < row["cpu_min_s"] <= row["cpu_s"] for row in rows)
        ),
    ),
    "decoding": Case(
        64,
        1,
        {},
        language,
        {"MODELS": ("gru",), "TEXTS": (2,)},
        lambda rows: (
            rows[0]["same_text"]
            and math.isclose(
                rows[0]["of_loop_min"], rows[0]["blocks_per_s"] / rows[0]["loop_per_s"]
            )
        ),
    ),
}
FAST = ("powers",)
FULL = ("selective", "pallas")


def test_every_suite_has_a_case():
    assert CASES.keys() == SUITES.keys()


@pytest.mark.parametrize("name", tiered(list(CASES), FAST, full=(*FAST, *FULL)))
def test_rows_are_those_of_the_suite(name, monkeypatch):
    case, suite = CASES[name], SUITES[name].rows
    for attribute, value in case.patched.items():
        monkeypatch.setattr(case.module, attribute, value)
    options = dict(case.options)
    if "repeats" in inspect.signature(suite).parameters:
        options["repeats"] = 1
    roofline.bandwidth.cache_clear()
    rows = list(suite(case.length, **options))
    assert len(rows) == case.n_rows
    assert all(row.keys() == rows[0].keys() for row in rows)
    for row in rows:
        times = (row[key] for key in row if key.endswith(("_s", "_ns", "ms")))
        assert all(time is None or 0 <= time < math.inf for time in times)
    assert case.check(rows), rows


def test_errors_are_seen():
    exact = np.array([[1.0, -4.0]])
    assert relative_error(jnp.asarray([[1.0, -3.0]]), exact) == 0.25
    tree, other = {"a": exact, "b": 2 * exact}, {"a": exact, "b": 4 * exact}
    assert roofline._largest_error(tree, other) == 0.5


def test_operations_are_counted_in_loops_products_and_transforms():
    def three_steps(x):
        def step(x, _):
            return jnp.exp(x) @ x, None

        return jax.lax.scan(step, x, None, length=3)[0]

    x = jnp.ones((4, 4))
    assert limits.count(three_steps, x) == (3 * 2 * 4**3, 0, 3 * 16)
    z = x.astype(jnp.complex64)
    assert limits.count(lambda z: z * z + z, z) == (0, (6 + 2) * 16, 0)
    for function, argument, of_one in (
        (jnp.fft.fft, z, 5 * 4 * 2),
        (jnp.fft.rfft, x, 2.5 * 4 * 2),
        (lambda z: jnp.fft.irfft(z, 4), z[:, :3], 2.5 * 4 * 2),
    ):
        assert limits.count(function, argument).elementwise == 4 * of_one
    with pytest.raises(ValueError, match="no loop of unknown length"):
        limits.count(lambda x: jax.lax.while_loop(lambda x: x[0, 0] < 9, jnp.exp, x), x)


@pytest.mark.full
def test_recurrence_with_a_wrong_method_has_an_error(monkeypatch):
    right = kernels.linear_recurrence

    def wrong(a, b, *, method):
        h, last = right(a, b, method=method)
        return (2 * h if method == "fft" else h), last

    monkeypatch.setattr(kernels, "linear_recurrence", wrong)
    rows = list(kernels.recurrence_rows(5, n=2, repeats=1))
    assert [row["what"] for row in rows if row["error"] > 0.5] == ["fft"]


@pytest.mark.nightly
def test_kernel_of_a_long_shift_is_no_single_tap_with_few_states():
    (few,) = dlr.long_shift_rows(256, d_state=8, repeats=1)
    assert few["states"] == 8 and few["left"] > 1


@pytest.mark.nightly
def test_models_of_the_throughput_have_one_size():
    tokens = jnp.zeros((1, 2), jnp.int32)
    sizes = []
    for model in language.throughput_models(512, 12, 8192).values():
        variables = jax.eval_shape(model.init, jax.random.key(0), tokens)
        sizes.append(sum(leaf.size for leaf in jax.tree.leaves(variables)))
    assert 30e6 < min(sizes) and max(sizes) < 1.3 * min(sizes)


def test_bytes_are_of_temporaries_and_results():
    row, y = measure("forward", jnp.sin, jnp.zeros(1000), repeats=1)
    assert y.shape == (1000,)
    assert 4000 <= row["forward_bytes"] < 8000
    assert row["forward_s"] > 0 and row["forward_compile_s"] > 0


def test_timed_calls_copy_no_argument_to_the_device():
    x = np.arange(6, dtype=np.float32)[::2]
    with jax.transfer_guard_host_to_device("disallow"):
        measure("forward", jnp.sin, x, repeats=1)


def test_functions_are_timed_in_turns_after_one_call_of_each():
    calls = []
    runs = {name: functools.partial(calls.append, name) for name in "ab"}
    seconds = time_in_turns(runs, repeats=2)
    assert calls == ["a", "b", "b", "a", "a", "b"]
    assert 0 <= seconds["a_min_s"] <= seconds["a_s"]
