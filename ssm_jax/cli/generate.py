"""Continues a prompt with the language model of a run.

    ssm-jax generate --workdir=runs/s5 --prompt="It was the best of times"

Tokens are sampled and printed in blocks of 64. Several ``--prompt`` are continued in
one batch, and printed one after another at the end. ``--save_state`` saves the final
state, and ``--load_state`` continues from it in place of a prompt; the text is the same
as that of a single call. ``--workdir`` may also be the folder of a Mamba of Hugging
Face; see `ssm_jax.cli.pretrained`. A model of bytes accepts any bytes as a prompt,
other models UTF-8.
"""

import itertools
import os
import sys

from absl import flags

from ssm_jax.cli.pretrained import restore_any
from ssm_jax.cli.run_flags import check_writable, define_run
from ssm_jax.evaluation import GenerationState, Sampling, generate
from ssm_jax.fields import Seed, check_value


def define_flags() -> None:
    """Defines the flags of this program."""
    define_run("Directory of the text, if it has moved.")
    flags.DEFINE_multi_string("prompt", [], "Text to continue (default: empty).")
    flags.DEFINE_integer("n_tokens", 500, "Tokens to generate.", lower_bound=1)
    flags.DEFINE_float("temperature", 1.0, "Divides the logits; 0 is greedy decoding.")
    flags.DEFINE_integer("top_k", None, "Sample from the k most likely tokens.")
    flags.DEFINE_float("top_p", None, "Sample from this probability mass.")
    flags.DEFINE_integer("seed", 0, "Seed of the sampling, below 2**32.")
    flags.DEFINE_string("save_state", None, "File to save the final state to.")
    flags.DEFINE_string("load_state", None, "File of --save_state to continue from.")


def main(argv):
    """Continues the prompts of ``--prompt`` and prints the texts."""
    del argv
    values = flags.FLAGS
    sampling = Sampling(
        temperature=values.temperature, top_k=values.top_k, top_p=values.top_p
    )
    check_value("seed", values.seed, Seed)
    # Before the model is loaded, so that no text is generated and then lost.
    check_writable("save_state", values.save_state)
    restored = restore_any(values.workdir)
    task = restored.text
    if values.load_state is None:
        heads = values.prompt or [""]
        prompts, saved = [task.encode(head) for head in heads], None
    elif values.prompt:
        raise ValueError(
            f"`--prompt` must be left out with `--load_state`, got {values.prompt}; "
            "the saved text is continued from its last token."
        )
    else:
        saved = GenerationState.load(values.load_state, restored.model)
        heads, prompts = [""] * len(saved.tokens), saved.tokens[:, None].tolist()
    steps = generate(
        restored.model,
        restored.variables,
        prompts,
        sampling=sampling,
        seed=values.seed,
        state=saved and saved.state,
        n_drawn=saved.n_drawn if saved else 0,
    )
    is_single = len(heads) == 1
    # Bytes, because a token may be part of a UTF-8 character; `fsencode` restores the
    # bytes of a prompt that is not UTF-8.
    out, texts = sys.stdout.buffer, [[os.fsencode(head)] for head in heads]
    if is_single:
        out.write(*texts[0])
    step = saved
    for step in itertools.islice(steps, values.n_tokens):
        pieces = [task.decode(int(token)) for token in step.tokens]
        if is_single:
            out.write(pieces[0])
            # Shows the token now: `stdout.buffer` is flushed when it is full.
            out.flush()
        else:
            for text, piece in zip(texts, pieces, strict=True):
                text.append(piece)
    if is_single:
        out.write(b"\n")
    else:
        out.writelines(b"".join(text) + b"\n---\n" for text in texts)
    if values.save_state and step:
        step.save(values.save_state)
