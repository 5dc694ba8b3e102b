"""Writes on from a prompt, with the language model of a run.

    python -m launch.generate --workdir=runs/s5 --prompt="It was the best of times"

Each token stands on the terminal as soon as it is drawn. With several ``--prompt`` all
are written on together, and printed one after another.
"""

import itertools
import sys

from absl import flags

from launch import cli
from ssm_jax.evaluation import Sampling, generate, restore
from ssm_jax.tasks import TextFolder

WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run.", required=True)
PROMPT = flags.DEFINE_multi_string("prompt", [""], "Where a text begins.")
N_TOKENS = flags.DEFINE_integer("n_tokens", 500, "Tokens to write.", lower_bound=1)
TEMPERATURE = flags.DEFINE_float(
    "temperature", 1.0, "What logits are divided by; 0 takes the likeliest token."
)
TOP_K = flags.DEFINE_integer("top_k", None, "Draws from the likeliest so many tokens.")
TOP_P = flags.DEFINE_float("top_p", None, "Draws from the likeliest this part.")
SEED = flags.DEFINE_integer("seed", 0, "Of what is drawn.", lower_bound=0)
DATA_DIR = flags.DEFINE_string("data_dir", None, "Folder of the text, if it has moved.")


def main(argv):
    """Writes."""
    del argv
    sampling = Sampling(
        temperature=TEMPERATURE.value, top_k=TOP_K.value, top_p=TOP_P.value
    )
    restored = restore(WORKDIR.value, data_dir=DATA_DIR.value)
    task = restored.task
    if not isinstance(task, TextFolder):
        raise ValueError(
            "`--workdir` must be of a run on a `TextFolder`, got one on "
            f"{type(task).__name__}; only a language model writes."
        )
    prompts = [task.encode(prompt) for prompt in PROMPT.value]
    steps = generate(
        restored.model,
        restored.variables,
        prompts,
        sampling=sampling,
        seed=SEED.value,
    )
    drawn = (tokens for tokens, _ in itertools.islice(steps, N_TOKENS.value))
    out = sys.stdout.buffer
    if len(prompts) == 1:
        out.write(PROMPT.value[0].encode())
        for (token,) in drawn:
            out.write(task.spell(int(token)))
            out.flush()
        out.write(b"\n")
        return
    for prompt, tokens in zip(PROMPT.value, zip(*drawn, strict=True), strict=True):
        written = b"".join(task.spell(int(token)) for token in tokens)
        out.write(prompt.encode() + written + b"\n---\n")


if __name__ == "__main__":
    cli.run(main)
