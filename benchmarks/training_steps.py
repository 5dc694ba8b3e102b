"""Whole training steps compared to plain ones and to ones without a recurrence."""

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

from benchmarks import plain
from benchmarks.classifiers import CLASSES, classifier
from benchmarks.measurement import Row, in_turns
from ssm_jax.tasks.base import Batch
from ssm_jax.training.state import RunSpec, TrainState
from ssm_jax.training.step import train_step
from ssm_jax.types import Activations, Array, Outputs, PyTree

LEARNING_RATE = 1e-3

TOLERANCE = 1e-3
"""Bound on the difference of the losses before the first step, relative to ours."""

OURS: Mapping[str, Mapping[str, bool]] = {
    "ours": {},
    "identity": {"recurrent": False},
    "scanned": {"scan_blocks": True},
}
"""Fields of the classifiers that take our step."""


def training_step_rows(
    length: int,
    *,
    batch: int = 8,
    width: int = 128,
    n_layers: int = 4,
    repeats: int,
) -> Iterable[Row]:
    """Times a step of AdamW of each classifier, in turns.

    Args:
      length: Number of steps of a sequence.
      batch: Number of sequences.
      width: Number of channels.
      n_layers: Number of blocks.
      repeats: Number of timed turns.

    Yields:
      A row for each model: seconds of our step, of the plain step of the same model
      with the same parameters (``plain``), of our step with the identity in the place
      of the recurrence (``identity``) and of our step with a scan over the blocks
      (``scanned``), median and minimum; the ratios of ours to the others, and the
      difference of the first losses of the plain and our step.

    Raises:
      ArithmeticError: The losses differ by more than `TOLERANCE`.
    """
    sizes: dict[str, Any] = {"width": width, "n_layers": n_layers, "batch": batch}
    for name, layer in LAYERS.items():
        logging.info("%s, %d steps", name, length)
        runs, losses = {}, {}
        for what, fields in OURS.items():
            found = classifier(
                name, length, **sizes, **fields, learning_rate=LEARNING_RATE
            )
            run, state = found.create()
            if what == "ours":
                params = jax.tree.map(jnp.copy, state.params)  # Steps donate theirs.
                runs["plain"], losses["plain"] = _plain(layer, params, found.batch)
            runs[what], losses[what] = our_step(run, state, found.batch)
        difference = abs(losses["plain"] / losses["ours"] - 1)
        if difference > TOLERANCE:
            raise ArithmeticError(
                f"the loss of {name} must be within {TOLERANCE} of ours, got a "
                f"difference of {difference:.2g}."
            )
        seconds = in_turns(runs, repeats=repeats)
        ours, ours_min = seconds["ours_s"], seconds["ours_min_s"]
        yield {
            "what": name,
            "length": length,
            **sizes,
            **seconds,
            **{
                f"of_{other}{suffix}": time / seconds[f"{other}{suffix}_s"]
                for other in ("plain", "identity", "scanned")
                for suffix, time in (("", ours), ("_min", ours_min))
            },
            "difference": difference,
        }


def our_step(
    run: RunSpec, state: TrainState, batch: Batch
) -> tuple[Callable[[], Array], float]:
    """Returns our step, which continues from its last state, and the first loss."""
    step = jax.jit(partial(train_step, run), donate_argnums=0)
    batch = jax.tree.map(jnp.asarray, batch)
    state, sums = step(state, batch)
    loss = sums["loss"].compute()

    def take():
        nonlocal state
        state, sums = step(state, batch)
        return sums["loss"]

    return take, loss


def _plain(layer, params, batch) -> tuple[Callable[[], Array], float]:
    """As `our_step`, of `optax.adamw` and a loop over blocks with a plain layer."""
    transform = optax.adamw(LEARNING_RATE, weight_decay=0.0)
    x, targets = jnp.asarray(batch.inputs), jnp.asarray(batch.targets)

    def loss(params):
        logits = predictions(layer, params, x)
        of_row = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
        return jnp.mean(of_row)

    @partial(jax.jit, donate_argnums=(0, 1))
    def step(params, opt_state):
        value, gradient = jax.value_and_grad(loss)(params)
        updates, opt_state = transform.update(gradient, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, value

    params, opt_state, first = step(params, transform.init(params))

    def take():
        nonlocal params, opt_state
        params, opt_state, value = step(params, opt_state)
        return value

    return take, float(first)


PlainLayer = Callable[[PyTree, Activations], Outputs]


def predictions(layer: PlainLayer, params: PyTree, x: Activations) -> Outputs:
    """Logits of pre-norm blocks applied one after the other, by modules of Flax.

    Args:
      layer: The layer of a block, ``(params, x) -> y``.
      params: Parameters of our `SequenceModel` with the same layer.
      x: Input, ``(b, l, f)``.
    """
    width = params["norm"]["layer"]["scale"].shape[0]
    x = _dense(params["encoder"]["linear"], width, x)
    n_layers = sum(name.startswith("block_") for name in params)
    for block in (params[f"block_{i}"] for i in range(n_layers)):
        x = x + layer(block["layer"], _norm(block["norm"], x))
    pooled = jnp.mean(_norm(params["norm"], x), 1)
    return _dense(params["head"]["linear"], CLASSES, pooled)


def _dense(params, features, x) -> Any:
    dense = nn.Dense(features, use_bias="bias" in params["dense"])
    return dense.apply({"params": params["dense"]}, x)


def _norm(params, x) -> Any:
    return nn.LayerNorm(epsilon=1e-5).apply({"params": params["layer"]}, x)


def _glu_layer(recurrence, params, x):
    """A plain recurrence, GELU and a gated linear unit."""
    y = jax.nn.gelu(recurrence(params["recurrent"]["recurrence"], x), approximate=False)
    return nn.glu(_dense(params["mixing"]["out"], 2 * x.shape[-1], y))


def _mamba_layer(params, x):
    """Mamba with a grouped convolution and a plain selective scan."""
    d = x.shape[-1]
    u, z = jnp.split(_dense(params["in"], 4 * d, x), 2, -1)
    taps = params["convolution"]["kernel"]
    convolution = nn.Conv(
        2 * d, (len(taps),), padding="CAUSAL", feature_group_count=2 * d
    )
    own = {"kernel": taps[:, None], "bias": params["convolution"]["bias"]}
    filtered: Any = convolution.apply({"params": own}, u)
    u = jax.nn.silu(filtered)
    y = plain.selective_scan(params["recurrent"]["recurrence"], u)
    return _dense(params["out"], d, y * jax.nn.silu(z))


LAYERS: Mapping[str, PlainLayer] = {
    "S5": partial(_glu_layer, plain.s5),
    "S4D": partial(_glu_layer, plain.s4d),
    "DLR": partial(_glu_layer, plain.dlr),
    "CES": partial(_glu_layer, plain.ces),
    "Mamba": _mamba_layer,
}
"""The plain layers of the classifiers."""
