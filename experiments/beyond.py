"""One step beyond each paper: questions that the papers leave open."""

from collections.abc import Mapping
from typing import Any

from experiments.page import Benchmark, Lengths, Paper, Table

_TINY = (
    r"longssm/text:model={model},length=16,state_init=(carry|zero),rows=32,size=tiny"
)
_LAYERS = _TINY.replace("(carry|zero)", "carry")


def _scientific(name: str):
    """Shows a number, if it is not 0."""

    def show(row: Mapping[str, Any]) -> str:
        return f"{row[name]:.1e}" if row[name] else ""

    return show


PAPER = Paper(
    "One step beyond each paper",
    "",
    (
        Benchmark(
            "DLR: exact powers of the decays",
            """\
Three evaluations of the same stored parameters: `exact`, the phase in fixed point, as
everywhere in this library; `exponentials`, `exp(l log lambda)` in float32 as in the
authors' code; `products`, one more multiplication by the decay for each step, as in a
scan. `float64` is what the rounding of the stored parameters leaves. `error` is the
largest error of the kernel of DLR as initialized, relative to its largest tap; its
decays end it before the longest lengths. `distance` is the squared distance from a
single tap of the kernel of a shift by 7/8 of the length, by DLR-prod with modes that do
not decay and weights in closed form. No model is trained. Measured by
`python -m benchmarks --suite=powers` on {machine}.
""",
            "powers.json",
            {
                "steps": lambda row: f"{row['length']:,}",
                "evaluation": lambda row: row["what"],
                "error": _scientific("error"),
                "states": lambda row: f"{row['states']:,}",
                "distance": _scientific("left"),
            },
            {"Errors by length and evaluation": "dlr/powers.png"},
        ),
        Table(
            "ETSMLP",
            "CES as a causal language model",
            reduced=(_TINY.format(model="(dlr|ets|fru|gru)"),),
            references=(_TINY.format(model="ets"),),
            note="Models trained on windows of 16 bytes of novels, of the same width, "
            "depth, feed-forward layers, text and steps. The number of parameters is "
            "not the same.",
        ),
        Benchmark(
            "FRU: all steps in parallel",
            """\
An FRU with 60 frequencies, whose horizon is the length, with its initial weights and
with larger ones, and a GRU with 32 states, on normal inputs. An iteration evaluates all
steps in parallel; `no` in column `converged` means that the solver stopped and
evaluated step by step. `error` is the largest difference from the outputs step by step,
relative to the largest output. Measured by `python -m benchmarks --suite=iterations` on
{machine}.
""",
            "iterations.json",
            {
                "unit": lambda row: row["what"],
                "steps": lambda row: f"{row['length']:,}",
                "iterations": lambda row: str(row["iterations"]),
                "converged": lambda row: "yes" if row["converged"] else "no",
                "error": lambda row: f"{row['error']:.1e}",
            },
            {"Iterations by length and scale of the weights": "fru/iterations.png"},
        ),
        Benchmark(
            "FRU: parallel steps and Lyapunov exponents",
            """\
An RNN and a GRU with 32 states and an FRU with 60 frequencies, whose matrices are their
initial ones times a factor, on normal inputs of 784 steps. `exponent` is the
largest Lyapunov exponent, the mean logarithm per step of the growth of a small change
of the state, and `growth` that over the sequence. Measured by
`python -m benchmarks --suite=stability` on {machine}.
""",
            "stability.json",
            {
                "unit": lambda row: row["what"],
                "weights": lambda row: f"x {row['factor']:g}",
                "exponent": lambda row: f"{row['exponent']:.1e}",
                "growth": lambda row: f"{row['growth']:.2f}",
                "iterations": lambda row: str(row["iterations"]),
                "converged": lambda row: "yes" if row["converged"] else "no",
            },
        ),
        Benchmark(
            "FRU: all steps in parallel on a GPU",
            """\
{batch} sequences and FRUs with {frequencies} frequencies, the outputs without their
gradients; milliseconds. Measured by `python -m benchmarks --suite=iterations` with
`--options=batch={batch},frequencies={frequencies}` on {machine}.
""",
            "iterations_gpu.json",
            {
                "unit": lambda row: row["what"],
                "steps": lambda row: f"{row['length']:,}",
                "iterations": lambda row: str(row["iterations"]),
                "in parallel": lambda row: f"{1e3 * row['iterations_s']:.1f}",
                "step by step": lambda row: f"{1e3 * row['steps_s']:.1f}",
                "ratio": lambda row: f"{row['iterations_s'] / row['steps_s']:.2f}",
            },
        ),
        Lengths(
            "LongSSM: carried states of DLR, CES, FRU and GRU",
            _TINY.format(model="(dlr|ets|fru|gru)"),
            "longssm/carried.png",
        ),
        Table(
            "LongSSM",
            "Mamba-2, Mamba, S5, Gated DeltaNet and a hybrid at one size",
            reduced=(_LAYERS.format(model="(mamba|s5|gated_delta_net|hybrid|mamba2)"),),
            references=(_LAYERS.format(model="mamba2"),),
            note="Models trained with carried states on windows of 16 bytes of novels, "
            "of the same width, depth, text and steps, with 31,616 (S5), 31,776 "
            "(hybrid), 32,132 (Gated DeltaNet) and 32,472 (Mamba-2) parameters; Mamba, "
            "without an MLP as published, has 28,160. The hybrid is a layer of Griffin "
            "and one of attention to the last 64 steps. The baseline is the unigram "
            "model of bytes.",
        ),
        Lengths(
            "LongSSM: Mamba-2, Mamba, S5, Gated DeltaNet and a hybrid by length",
            _LAYERS.format(model="(mamba|s5|gated_delta_net|hybrid|mamba2)"),
            "longssm/layers.png",
        ),
    ),
)
"""A section for each question."""
