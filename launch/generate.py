"""Writes on from a prompt, with the language model of a run.

    python -m launch.generate --workdir=runs/s5 --prompt="It was the best of times"

Each token stands on the terminal as soon as it is drawn. With several ``--prompt`` all
are written on together, and printed one after another. A text goes on from the file
that ``--save_state`` names, by ``--load_state`` in place of a prompt: the same text as
if it had been written at once. A model that reads bytes takes any bytes as a prompt,
others UTF-8.
"""

import itertools
import os
import sys

from absl import flags

from launch import cli
from ssm_jax.evaluation import GenerationState, Sampling, generate, restore
from ssm_jax.fields import Seed, check_value

WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run.", required=True)
PROMPT = flags.DEFINE_multi_string("prompt", [], "Where a text begins; nowhere.")
N_TOKENS = flags.DEFINE_integer("n_tokens", 500, "Tokens to write.", lower_bound=1)
TEMPERATURE = flags.DEFINE_float(
    "temperature", 1.0, "What logits are divided by; 0 takes the likeliest token."
)
TOP_K = flags.DEFINE_integer("top_k", None, "Draws from the likeliest so many tokens.")
TOP_P = flags.DEFINE_float("top_p", None, "Draws from the likeliest this part.")
SEED = flags.DEFINE_integer("seed", 0, "Of what is drawn, below 2**32.")
DATA_DIR = flags.DEFINE_string("data_dir", None, "Folder of the text, if it has moved.")
SAVE_STATE = flags.DEFINE_string("save_state", None, "File to go on from later.")
LOAD_STATE = flags.DEFINE_string("load_state", None, "File to go on from.")


def main(argv):
    """Writes."""
    del argv
    sampling = Sampling(
        temperature=TEMPERATURE.value, top_k=TOP_K.value, top_p=TOP_P.value
    )
    check_value("seed", SEED.value, Seed)
    cli.check_writable("save_state", SAVE_STATE.value)
    restored = restore(WORKDIR.value, data_dir=DATA_DIR.value)
    task = restored.text
    if LOAD_STATE.value is None:
        heads = PROMPT.value or [""]
        prompts, before = [task.encode(head) for head in heads], None
    elif PROMPT.value:
        raise ValueError(
            f"`--prompt` must be left out with `--load_state`, got {PROMPT.value}; the "
            "text goes on from its last token."
        )
    else:
        before = GenerationState.load(LOAD_STATE.value, restored.model)
        heads, prompts = [""] * len(before.tokens), before.tokens[:, None].tolist()
    steps = generate(
        restored.model,
        restored.variables,
        prompts,
        sampling=sampling,
        seed=SEED.value,
        state=before and before.state,
        n_drawn=before.n_drawn if before else 0,
    )
    at_once = len(heads) == 1
    out, texts = sys.stdout.buffer, list(map(os.fsencode, heads))
    if at_once:
        out.write(texts[0])
    step = before
    for step in itertools.islice(steps, N_TOKENS.value):
        spelt = [task.decode(int(token)) for token in step.tokens]
        if at_once:
            out.write(spelt[0])
            out.flush()
        texts = [text + more for text, more in zip(texts, spelt, strict=True)]
    out.write(b"\n" if at_once else b"".join(text + b"\n---\n" for text in texts))
    if SAVE_STATE.value and step:
        step.save(SAVE_STATE.value)


if __name__ == "__main__":
    cli.run(main)
