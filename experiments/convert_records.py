"""Converts recorded results to the current names of experiments.

    python -m experiments.convert_records

Rewrites every file of ``experiments/results`` in place: the experiment and variant of a
record and its file name, and, by the tables below, values, import paths of classes and
names of fields. Current names are unchanged. `experiments.ledger` then rewrites the
pages.
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from experiments.records import BENCHMARKS, RESULTS, path_of

EXPERIMENTS = {
    "dlr/shift": ("dlr/atomic", "task=shift"),
    "dlr/cumsum": ("dlr/atomic", "task=cumsum"),
}
"""Names of experiments, old to new, with the pair that their variants gain."""

ADDRESSES: dict[str, str] = {}
"""Addresses of classes, ``"ssm_jax.module:Class"``, old to new."""

FIELDS = {"start": "window_state"}
"""Names of fields, old to new, wherever a record has them."""

VALUES = {
    "start": {"previous": "carry", "other": "state_passing"},
    "initial_state": {"previous": "carry", "other": "state_passing"},
}
"""Values of fields (by their old names), old to new."""

SRU = dict(
    zip(
        ("feedback_kernel", "feedback_bias", "seen_kernel", "input_kernel",
         "input_bias", "output_kernel", "output_bias"),
        ("W_r", "b_r", "W_phi", "W_x", "b_phi", "W_o", "b_o"),
        strict=True,
    )
)  # fmt: skip
FRU = dict(
    zip(SRU, ("W_1", "b_1", "W_2", "U", "b_2", "Y", "b_y"), strict=True), phase="theta"
)
PARAMETERS = {"sru": SRU, "fru": FRU, "fru_summed": FRU}
"""Parameters named in the rows of the benchmark `finite`, by row, old to new."""

SIZES = {word: ("size", word) for word in ("demo", "small", "quarter")}
UNITS = {word: ("model", word) for word in ("fru", "fru40", "sru", "lstm", "rnn")}
CODE = {"code": ("hyperparameters", "code")}
ETSMLP = SIZES | {
    word: ("model", word)
    for word in (
        "gate", "transformer", "linear_attention", "dss_exp", "dss_softmax",
        "s4", "s4d", "s5",
    )
}  # fmt: skip
WORDS: dict[str, dict[str, tuple[str, str]]] = {
    "dlr/pixel_mnist": SIZES | {"permuted": ("permuted", "true")},
    "etsmlp/language": {
        **ETSMLP,
        **CODE,
        **{
            word: ("dataset", word)
            for word in ("cola", "sst2", "imdb", "qqp", "mrpc", "mnli", "qnli")
        },
    },
    "etsmlp/listops": {
        **ETSMLP,
        **CODE,
        **{
            word: ("ablation", word)
            for word in ("real", "no_alpha", "no_beta", "no_omega")
        },
    },
    "etsmlp/pathx": ETSMLP | {"small_change": ("small_change", "true")},
    "fru/imdb": SIZES | UNITS | {"words1": ("n_frequencies", "1"), "words": ("", "")},
    "fru/mixture": SIZES
    | UNITS
    | {w: ("curves", w) for w in ("sines", "poly5", "poly10", "poly15")},
    "fru/pixel_mnist": SIZES
    | UNITS
    | {w: ("inputs", w) for w in ("pixels", "permuted", "rows")},
    "longssm/text": {
        **{word: ("size", word) for word in ("small", "d192", "d768", "d1024")},
        **{
            word: ("model", word)
            for word in ("s5", "s5_bounded", "mamba", "gru", "dlr", "ets", "fru")
        },
        **{word: ("state_init", word) for word in ("zero", "carry", "noise")},
        "previous": ("state_init", "carry"),
        "other": ("state_init", "state_passing"),
        "state_passing": ("state_init", "state_passing"),
        "shuffled": ("order", "shuffled"),
        "rows32": ("rows", "32"),
        "d384": ("", ""),
    },
}
"""Words of the variants that were joined by ``+``, of each experiment."""

PATTERNS: tuple[tuple[str, str], ...] = (
    (r"(?:stable|ring)_[\d._]+", "init"),
    (r"\d+", "length"),
)

ORDER = (
    "dataset", "curves", "inputs", "model", "length", "state_init", "order", "rows",
    "n_frequencies", "ablation", "init", "permuted", "small_change", "hyperparameters",
    "size",
)  # fmt: skip


def variant(text: str, experiment: str) -> str:
    """The variant of an experiment by names and values.

    Example:
      >>> variant("s5+16+previous+rows32+small", "longssm/text")
      'model=s5,length=16,state_init=carry,rows=32,size=small'
      >>> variant("size=small", "fru/mixture")
      'size=small'
    """
    if not text or "=" in text:
        return text
    known = WORDS.get(experiment, ETSMLP)
    pairs = [
        known[word] if word in known else _by_pattern(word) for word in text.split("+")
    ]
    named = sorted((pair for pair in pairs if pair[0]), key=lambda p: ORDER.index(p[0]))
    return ",".join(f"{name}={value}" for name, value in named)


def _by_pattern(word: str) -> tuple[str, str]:
    for pattern, name in PATTERNS:
        if re.fullmatch(pattern, word):
            return name, word
    raise ValueError(f"`variant` must have known words, got {word!r}; extend `WORDS`.")


def converted(value: Any, name: str = "") -> Any:
    """A value of JSON with new names of fields, classes and choices."""
    if isinstance(value, Mapping):
        return {FIELDS.get(k, k): converted(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [converted(each, name) for each in value]
    if isinstance(value, str):
        return VALUES.get(name, {}).get(value, ADDRESSES.get(value, value))
    return value


def convert(path: Path, results: Path = RESULTS) -> Path:
    """Converts the files of one record; returns the new path of the first."""
    row = converted(json.loads(path.read_text()))
    text = variant(row["variant"], row["experiment"])
    row["experiment"], pair = EXPERIMENTS.get(
        row["experiment"], (row["experiment"], "")
    )
    row["variant"] = ",".join(filter(None, (pair, text)))
    beside, new = path.with_suffix(".jsonl"), path_of(row, results)
    lines = beside.read_text().splitlines() if beside.exists() else []
    for old in (path, beside):
        old.unlink(missing_ok=True)
    new.write_text(json.dumps(row, indent=2) + "\n")
    if lines:
        text = "".join(json.dumps(converted(json.loads(line))) + "\n" for line in lines)
        new.with_suffix(".jsonl").write_text(text)
    return new


def convert_finite(path: Path) -> None:
    """Converts the names of parameters in the recorded benchmark `finite`."""
    recorded = json.loads(path.read_text())
    for row in recorded["rows"]:
        if names := PARAMETERS.get(row["what"]):
            row["where"] = " ".join(names.get(n, n) for n in row["where"].split())
    path.write_text(json.dumps(recorded, indent=2) + "\n")


def main(results: Path = RESULTS, show: Callable[[str], object] = print) -> None:
    """Converts all records."""
    for path in sorted(results.rglob("*.json")):
        new = convert(path, results)
        if new != path:
            show(f"{path.relative_to(results)} -> {new.relative_to(results)}")


if __name__ == "__main__":
    main()
    convert_finite(BENCHMARKS / "finite.json")
