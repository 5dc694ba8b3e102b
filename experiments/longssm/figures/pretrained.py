r"""Published Mamba models at lengths beyond their training length; figure 2.

    python -m experiments.longssm.figures.pretrained --data=FOLDER \
        --output=pretrained.png

``FOLDER`` contains the text, ``text.txt``, and a directory per model in the format of
Hugging Face (``mamba-130m-hf`` and so on): ``config.json``, ``model.safetensors``,
``tokenizer.json``. A point is the perplexity of windows of this length with zero
states, on the same tokens for all lengths. The models were trained on 2,048 tokens; in
the paper their perplexity does not increase up to twice this length.

Source: Wang, arXiv 2406.02080, 2024, figure 2, on the Pile.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from experiments.figures import run
from ssm_jax.evaluation.length_extension import LossAtLength, losses_by_length
from ssm_jax.interop import load_pretrained
from ssm_jax.plots.style import COLUMN, GREY, PALETTE, SMALL, figure, plain
from ssm_jax.tasks.text.subwords import Subwords

TRAINED = 2_048
LENGTHS = tuple(2**i for i in range(9, 16))
MOST_TOKENS = 2**18


def measure(
    folder: str | Path, lengths: Sequence[int] = LENGTHS
) -> Iterator[tuple[str, list[LossAtLength]]]:
    """Evaluates each model of a directory.

    Args:
      folder: Directory of the text and the models; see the docstring of this module.
      lengths: Window lengths in tokens; each must divide the maximum.

    Yields:
      The name of a model and its loss at each length.

    Raises:
      FileNotFoundError: The text, or a file of a model, does not exist.
      ValueError: There is no model, or the text is shorter than the maximum length.
    """
    text = Path(folder, "text.txt").read_text(encoding="utf-8")
    models = sorted(path.parent for path in Path(folder).glob("*/config.json"))
    if not models:
        raise ValueError(
            f"`--data` must hold a folder with a config.json for each model, got none "
            f"in {folder}."
        )
    for path in models:
        model, variables = load_pretrained(path)
        tokens = np.concatenate([*Subwords(path / "tokenizer.json").encode([text])])
        tokens = tokens[: max(MOST_TOKENS, *lengths) + 1]
        yield path.name, list(losses_by_length(model, variables, tokens, lengths))


def draw(folder: str) -> Figure:
    """Plots one curve per model."""
    drawing = figure(COLUMN, 2.5)
    axes = drawing.subplots()
    for i, (name, losses) in enumerate(measure(folder)):
        axes.loglog(
            [loss.length for loss in losses],
            [loss.perplexity for loss in losses],
            color=PALETTE[i % len(PALETTE)],
            marker="o",
            markersize=3.5,
            label=name,
        )
    axes.axvline(TRAINED, color=GREY, linestyle="--", linewidth=1)
    axes.set_xticks(LENGTHS[::2], [f"{length:,}" for length in LENGTHS[::2]])
    axes.xaxis.set_minor_locator(NullLocator())
    plain(axes, title="published Mamba", x="tokens of a window", y="perplexity")
    axes.legend(frameon=False, fontsize=SMALL)
    return drawing


if __name__ == "__main__":
    run(draw)
