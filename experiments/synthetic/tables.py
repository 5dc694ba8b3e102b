"""What models learn of recall, copying and state tracking."""

from experiments.page import Benchmark, Paper
from experiments.synthetic.claims import CLAIMS

PAPER = Paper(
    "Recall, copying and state tracking",
    "",
    (
        *CLAIMS.values(),
        Benchmark(
            "A clock: the step modulo a number",
            """\
The step modulo 2 to 60, read from the powers of an eigenvalue of modulus 1 whose phase
is rounded to float32, as parameters are. The powers are `exact`, the phase in fixed
point, as everywhere in this library; `exponentials`, `exp(t log lambda)` in float32;
`products`, one more multiplication for each step, as in a scan; or in `float64`.
`accuracy` is that of all steps, `until` the number of steps before the first error. No
model is trained. Measured by `python -m benchmarks --suite=clock` on {machine}.
""",
            "clock.json",
            {
                "modulo": lambda row: str(row["modulus"]),
                "steps": lambda row: f"{row['length']:,}",
                "evaluation": lambda row: row["what"],
                "accuracy": lambda row: f"{row['accuracy']:.3f}",
                "until": lambda row: f"{row['until']:,}",
            },
        ),
    ),
)
"""A section for each claim, and for what needs no training."""
