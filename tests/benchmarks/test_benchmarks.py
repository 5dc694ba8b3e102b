"""The benchmark at a size at which only its arithmetic can go wrong."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.core import meta

from benchmarks import (
    decoding,
    finite,
    generators,
    huge_pages,
    iterations,
    kernels,
    language,
    long_shift,
    powers,
    roofline,
    scans,
    selective,
    smoothing,
    startup,
    synthetic,
    throughput,
    units,
    warm_start,
)
from benchmarks.exact import relative_error
from benchmarks.measurement import measure
from benchmarks.programs import programs as programs_timed
from ssm_jax.recurrences import FRU, SRU, log_spaced


def test_bytes_are_of_temporaries_and_results():
    row, y = measure("forward", jnp.sin, jnp.zeros(1000), repeats=1)
    assert y.shape == (1000,)
    assert 4000 <= row["forward_bytes"] < 8000
    assert row["forward_s"] > 0 and row["forward_compile_s"] > 0


def test_timed_calls_copy_no_argument_to_the_device():
    x = np.arange(6, dtype=np.float32)[::2]
    with jax.transfer_guard_host_to_device("disallow"):
        measure("forward", jnp.sin, x, repeats=1)
        scans.compared(jnp.multiply, lambda a, b: b * a, x, x, repeats=1)


@pytest.mark.full
def test_both_forms_of_the_kernel_are_exact_and_their_ratio_is_taken():
    usual, ours, ratio = kernels.modal_kernel_rows(64, d=2, n=3, repeats=1)
    assert usual["error"] < 1e-5 and ours["error"] < 1e-6
    assert ratio["grad_bytes"] == usual["grad_bytes"] / ours["grad_bytes"]


@pytest.mark.nightly
def test_kernel_of_a_long_shift_is_a_single_tap_if_the_states_are_enough():
    (row,) = long_shift.long_shift_rows(256, repeats=1)
    (few,) = long_shift.long_shift_rows(256, d_state=8, repeats=1)
    assert (row["states"], few["states"]) == (32, 8)
    assert row["left"] < 1e-8 < 1 < few["left"]
    assert row["step_s"] > 0 and row["step_bytes"] > 4 * 256 * 16 * 4


@pytest.mark.nightly
def test_a_training_starts_with_the_imports_and_compiles_less_from_a_cache():
    rows = {row["what"]: row["cpu_s"] for row in startup.startup_rows(2, repeats=1)}
    assert 0 < rows["packages"] < rows["training, cached"] < rows["training"]


def test_a_process_that_fails_before_the_step_is_an_error():
    with pytest.raises(RuntimeError, match="no_such_module"):
        startup.seconds_until(["-c", "import no_such_module"], 1)


@pytest.mark.nightly
def test_pages_are_compared_in_processes_of_their_own(monkeypatch):
    monkeypatch.setattr(huge_pages, "MODELS", ("CES",))
    (row,) = huge_pages.huge_page_rows(12, repeats=1)
    assert row["ratio"] == row["huge_s"] / row["usual_s"] > 0
    monkeypatch.setattr(huge_pages, "MODELS", ("no model",))
    with pytest.raises(RuntimeError, match="process of no model failed"):
        list(huge_pages.huge_page_rows(12, repeats=1))


@pytest.mark.nightly
def test_states_of_the_same_batch_save_iterations():
    for row in warm_start.warm_start_rows(12, repeats=1):
        assert 0 < row["moved_from_same_batch"] <= row["moved_from_zeros"] <= 13
        assert row["from_another_batch"] <= 13


@pytest.mark.full
def test_powers_are_compared_with_float64():
    wanted, exact, exponentials, products = powers.power_rows(1024, repeats=1)
    assert wanted["error"] == 0 and wanted["left"] <= 1.1 * exact["left"]
    assert exact["error"] < 1e-6 < products["error"] < exponentials["error"]
    assert all(row["left"] < 1e-5 for row in (exact, exponentials, products))


@pytest.mark.nightly
def test_scans_are_compared_with_the_plain_ones():
    rows = list(scans.time_invariant_rows(40, batch=2, n=3, repeats=1))
    assert [row["what"] for row in rows[:4]] == 2 * ["sequential"] + 2 * ["associative"]
    for row in rows:
        assert row["error"] < 1e-6 and row["plain_error"] < 1e-5
        assert row["forward_ratio"] > 0 and row["grad_bytes_ratio"] > 0


@pytest.mark.full
def test_plain_selective_scan_is_the_same_mathematics(monkeypatch):
    monkeypatch.setattr(selective, "SIZES", ((2, 3),))
    (row,) = selective.selective_rows(40, repeats=1)
    assert row["error"] < 1e-6 and row["grad_ratio"] > 0


@pytest.mark.full
def test_roofline_has_the_time_of_a_copy_and_the_error_of_each_method(monkeypatch):
    monkeypatch.setattr(roofline, "COPIED", 2**20)
    rows = list(roofline.roofline_rows(9, rows=2, width=6, repeats=1))
    assert len(rows) == len(programs_timed(9)) * 3 * 2
    for row in rows:
        assert row["ms"] > 0 and row["copy_ms"] > 0 and row["error"] < 1e-6
        assert row["predicted_ms"] is None  # On a CPU nothing is predicted.
        with_gradient = row["pass"] == "value and gradient"
        assert (row["gradient_error"] is not None) == with_gradient
        assert not with_gradient or row["gradient_error"] < 1e-5


def test_roofline_sees_a_wrong_value_and_a_wrong_gradient():
    exact = np.array([[1.0, -4.0]])
    assert relative_error(jnp.asarray([[1.0, -3.0]]), exact) == 0.25
    tree, other = {"a": exact, "b": 2 * exact}, {"a": exact, "b": 4 * exact}
    assert roofline._largest_error(tree, other) == 0.5


@pytest.mark.nightly
def test_iterations_give_the_outputs_of_single_steps():
    rows = list(iterations.iteration_rows(12, batch=1, frequencies=3, repeats=1))
    assert [row["what"].split(",")[0] for row in rows] == ["FRU"] * 4 + ["GRU"]
    for row in rows:
        assert row["converged"] and 1 < row["iterations"] <= 14
        assert row["error"] < 1e-5


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("usual", "unit"), [(units._FRU, FRU), (units._SRU, SRU)], ids=["fru", "sru"]
)
@pytest.mark.parametrize("method", ["sequential", "associative"])
def test_units_as_written_are_the_same_mathematics(usual, unit, method, key):
    waves = {"frequencies": log_spaced(9, 20.0), "horizon": 20}
    sizes = {"d_statistic": 70} if unit is SRU else waves
    params = unit(**sizes).init(key, 2)
    x = jax.random.normal(key, (3, 20, 2))
    of_usual, of_ours = (
        u(**sizes).solve(params, x, method=method)[:2] for u in (usual, unit)
    )
    chex.assert_trees_all_close(of_ours, of_usual, rtol=0, atol=1e-6)


@pytest.mark.nightly
def test_units_are_compared_with_what_is_written():
    rows = list(units.unit_rows(6, batch=2, repeats=1))
    assert [row["what"] for row in rows[:3]] == ["FRU as written", "FRU", "FRU ratio"]
    written, ours, ratio = rows[3:]
    assert ratio["grad_s"] == written["grad_s"] / ours["grad_s"]


@pytest.mark.full
def test_generators_are_known_by_the_steps_of_their_sequences():
    (row,) = generators.generator_rows(1024, repeats=1)
    assert row["task"].startswith("Pathfinder") and row["examples_per_s"] > 0
    with pytest.raises(ValueError, match="^`lengths` must be of 1024, 16384, 2000"):
        generators.generator_rows(784, repeats=1)


@pytest.mark.nightly
def test_atomic_batches_are_timed_against_a_step_of_the_model():
    rows = list(synthetic.task_rows(24, d_state=4, repeats=1))
    assert {row["task"] for row in rows} == set(synthetic.TASKS)
    for row in rows:
        assert row["batch_ms"] > 0
        assert row["over_step"] == pytest.approx(row["batch_ms"] / row["step_ms"])


@pytest.mark.nightly
def test_the_usual_smoothing_is_the_same_mathematics(key):
    params = smoothing._OURS.init(key, 3)
    x = jnp.sin(jnp.arange(42.0)).reshape(2, 7, 3)
    ours, _ = smoothing._OURS.apply(params, x)
    usual, _ = smoothing._USUAL.apply(params, x)
    np.testing.assert_allclose(usual, ours, atol=1e-6)


@pytest.mark.nightly
def test_smoothing_is_compared_with_what_is_named():
    rows = {
        row["what"]: row
        for row in smoothing.smoothing_rows(16, batch=1, width=8, repeats=1)
    }
    ratio = rows["Transformer / ETSMLP"]["grad_s"]
    assert ratio == rows["Transformer"]["grad_s"] / rows["ETSMLP"]["grad_s"]


@pytest.mark.nightly
def test_models_of_the_throughput_have_one_size():
    tokens = jnp.zeros((1, 2), jnp.int32)
    sizes = []
    for model in throughput.models(512, 12, 8192).values():
        variables = meta.unbox(jax.eval_shape(model.init, jax.random.key(0), tokens))
        sizes.append(sum(leaf.size for leaf in jax.tree.leaves(variables)))
    assert 30e6 < min(sizes) and max(sizes) < 1.3 * min(sizes)


@pytest.mark.nightly
def test_throughput_is_that_of_each_model(monkeypatch):
    transformer = throughput.models(64, 1, 8)["Transformer"]
    monkeypatch.setattr(throughput, "models", lambda *sizes: {"one": transformer})
    (row,) = throughput.throughput_rows(8, width=64, n_layers=1, repeats=1)
    assert row["what"] == "one" and row["length"] == 8
    assert row["tokens_a_second"] > 0 and row["step_bytes"] > 0


@pytest.mark.full
def test_token_is_timed_after_the_prompt(monkeypatch):
    monkeypatch.setattr(language, "MODELS", ("gru",))
    (row,) = language.generation_rows(3, repeats=1)
    assert (row["what"], row["position"]) == ("gru", 3)
    assert row["token_s"] > 0 and row["over_first"] > 0
    assert row["state_bytes"] == 2 * 64 * 4  # two layers


@pytest.mark.nightly
def test_generated_text_is_that_of_one_loop(monkeypatch):
    monkeypatch.setattr(language, "MODELS", ("gru",))
    monkeypatch.setattr(decoding, "ROWS", (2,))
    (row,) = decoding.decoding_rows(64, repeats=1)
    assert row["same_text"]
    assert row["of_loop_min"] == pytest.approx(row["blocks_per_s"] / row["loop_per_s"])


@pytest.mark.full
def test_long_text_has_one_loss_in_pieces_and_at_once(monkeypatch):
    monkeypatch.setattr(language, "LONG", ("gru",))
    monkeypatch.setattr(language, "in_a_fresh_process", lambda run, *args: run(*args))
    monkeypatch.setattr("ssm_jax.evaluation.length_extension.PIECE", 8)
    (row,) = language.long_text_rows(24, repeats=1)
    assert row["error"] < 1e-5
    for way in language.WAYS:
        assert row[f"{way}_s"] > 0 and row[f"{way}_bytes"] > 1e6


def test_drawn_state_of_an_fru_is_at_the_first_step(monkeypatch):
    drawn = []

    def bad(recurrence, params, x, state, weights, *, method):
        drawn.append(state)
        return {"": np.zeros(len(x), bool), "x": np.zeros(len(x), bool)}

    monkeypatch.setattr(finite, "_bad", bad)
    finite.count(finite.RECURRENCES["fru"], 1.0, 1, length=4)
    (state,) = drawn
    assert np.all(state[..., -1] == 0) and np.all(state[..., :-1] != 0)
