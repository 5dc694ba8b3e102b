r"""Published Mambas at lengths beyond their training: figure 2.

    python -m launch.illustrate --figure=longssm/pretrained --data=FOLDER \
        --output=pretrained.png

``FOLDER`` holds ``text.txt``, the text that is read, and a folder for each model as
Hugging Face has them (``mamba-130m-hf`` and so on): ``config.json``,
``model.safetensors``, ``tokenizer.json``. A point is the perplexity of windows of that
length from fresh states, all of the same tokens; the models were trained on 2,048, up
to twice of which they hold, in the paper.

Source: Wang, arXiv 2406.02080, 2024, figure 2, of the Pile.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from ssm_jax.evaluation.length_extension import LossAtLength, losses_by_length
from ssm_jax.interop import load_mamba
from ssm_jax.plots.style import GREY, PALETTE, figure, plain
from ssm_jax.tasks.text.subwords import Subwords

TRAINED = 2_048
LENGTHS = tuple(2**i for i in range(9, 16))
MOST_TOKENS = 2**18


def measured(
    folder: str | Path, lengths: Sequence[int] = LENGTHS
) -> Iterator[tuple[str, list[LossAtLength]]]:
    """Measures each model of a folder.

    Args:
      folder: Holds the text and the models, as the head of this file says.
      lengths: Tokens of a window; each must divide the greatest.

    Yields:
      The name of a model and its loss at each length.

    Raises:
      FileNotFoundError: The text, or a file of a model, is not there.
      ValueError: There is no model, or the text is shorter than the greatest length.
    """
    text = Path(folder, "text.txt").read_text(encoding="utf-8")
    models = sorted(path.parent for path in Path(folder).glob("*/config.json"))
    if not models:
        raise ValueError(
            f"`--data` must hold a folder with a config.json for each model, got none "
            f"in {folder}."
        )
    for path in models:
        model, variables = load_mamba(path)
        tokens = np.concatenate([*Subwords(path / "tokenizer.json").encode([text])])
        tokens = tokens[: max(MOST_TOKENS, *lengths) + 1]
        yield path.name, list(losses_by_length(model, variables, tokens, lengths))


def draw(folder: str) -> Figure:
    """Draws them, a curve a model."""
    drawing = figure(5.6, 3.6)
    axes = drawing.subplots()
    for i, (name, found) in enumerate(measured(folder)):
        axes.loglog(
            [each.length for each in found],
            [each.perplexity for each in found],
            color=PALETTE[i % len(PALETTE)],
            marker="o",
            markersize=3.5,
            label=name,
        )
    axes.axvline(TRAINED, color=GREY, linestyle="--", linewidth=1)
    axes.set_xticks(LENGTHS[::2], [f"{length:,}" for length in LENGTHS[::2]])
    axes.minorticks_off()
    plain(axes, title="published Mamba", x="tokens of a window", y="perplexity")
    axes.legend(frameon=False, fontsize=8)
    return drawing
