"""Results of models computed in bfloat16 beside those in float32."""

from collections.abc import Sequence

from ssm_jax.cli import tables
from ssm_jax.cli.summary import Row, number, shown, summaries

_LOWER = ",dtype=bfloat16"
_SECTION = """\
## bfloat16 beside float32

The same setting computed in both dtypes, with the same seeds. `difference` is that of
the means, bfloat16 less float32, and `std` the sample standard deviation over seeds of
float32.

{table}"""


def section(rows: Sequence[Row]) -> str:
    """Returns the comparison of all experiments that were run in both dtypes.

    Args:
      rows: Records; the variant of one in bfloat16 ends with ``dtype=bfloat16``.

    Returns:
      Markdown; empty if no experiment was run in both dtypes, with seeds of float32.
    """
    found = {each.name: each for each in summaries(rows)}
    head = (
        "experiment", "metric", "float32", "bfloat16", "difference", "std", "seeds",
        "difference below std",
    )  # fmt: skip
    lines: list[tuple[str, ...]] = [head]
    for name, lower in found.items():
        full = found.get(name.removesuffix(_LOWER))
        if full is None or full is lower or full.std is None:
            continue
        difference = lower.mean - full.mean
        lines.append(
            (
                full.name,
                full.metric,
                shown(full),
                shown(lower),
                number(difference),
                number(full.std),
                f"{len(full.rows)}, {len(lower.rows)}",
                "yes" if abs(difference) < full.std else "no",
            )
        )
    return _SECTION.format(table=tables.markdown(lines)) if len(lines) > 1 else ""
