"""Training steps of small classifiers: their time, and their compilation by depth."""

import itertools
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from benchmarks import matrix, plain
from benchmarks.measurement import Row, time_in_turns
from ssm_jax.layers import (
    ChannelMixing,
    GatedDeltaNet,
    Mamba,
    Mamba2,
    RecurrentLayer,
)
from ssm_jax.models import Block, PooledHead, SequenceModel, VectorEncoder
from ssm_jax.recurrences import (
    CES,
    DLR,
    S4D,
    S5,
    SSD,
    GatedDeltaRule,
    Recurrence,
    SelectiveSSM,
)
from ssm_jax.recurrences.families.base import Params
from ssm_jax.tasks.base import Batch, Split, TaskSpec, generator
from ssm_jax.training import Optimizer
from ssm_jax.training.state import RunSpec, TrainState, abstract_state, create
from ssm_jax.training.step import train_step
from ssm_jax.types import Activations, Array, Outputs, PRNGKey, PyTree

FEATURES, CLASSES = 4, 10

RECURRENCES: Mapping[str, Recurrence] = {
    "S5": S5(d_state=128, blocks=1),
    "S4D": S4D(d_state=64),
    "DLR": DLR(d_state=64, dt_min=1e-3),
    "CES": CES(),
    "Mamba": SelectiveSSM(),
}
"""Of each model, with 64 states stored (S5), 32 and 64 per channel (S4D, DLR), one
(CES) and 16 (Mamba)."""

D_HEAD = 64
"""Sizes of the heads of the models whose states are matrices, if the width is as
large."""


def _mamba2(width: int) -> nn.Module:
    return Mamba2(SSD(d_head=min(D_HEAD, width), d_state=D_HEAD))


def _gated_delta_net(width: int) -> nn.Module:
    size = min(D_HEAD, width)
    rule = GatedDeltaRule(n_heads=width // size, d_key=size, d_value=size)
    return GatedDeltaNet(rule)


MATRIX_LAYERS: Mapping[str, Callable[[int], nn.Module]] = {
    "Mamba-2": _mamba2,
    "Gated DeltaNet": _gated_delta_net,
}
"""Layers whose states are matrices, by the width of the model."""


class Identity(Recurrence):
    """No recurrence: the output is the input."""

    def init(self, key: PRNGKey, d_in: int) -> Params:
        """Returns no parameters."""
        del key, d_in
        return {}

    def initial_state(self, batch_shape: tuple[int, ...], d_in: int) -> PyTree:
        """Returns None."""
        del batch_shape, d_in

    def apply(
        self, params: Params, x: Activations, state: PyTree = None, **options
    ) -> tuple[Outputs, PyTree]:
        """Returns ``x``."""
        del params, state, options
        return x, None


@dataclass(frozen=True)
class RandomVectors:
    """Sequences of random vectors with random classes.

    Attributes:
      length: Number of steps.
    """

    length: int

    @property
    def spec(self) -> TaskSpec:
        """Vectors and one class of each sequence."""
        return TaskSpec(
            length=self.length,
            inputs="vector",
            d_input=FEATURES,
            targets="classification",
            d_output=CLASSES,
            l_output=None,
        )

    def n_examples(self, split: Split) -> None:
        """Returns None: every split is endless."""
        del split

    def batch(self, split: Split, index: int, batch_size: int, seed: int) -> Batch:
        """Returns batch ``index``; see `ssm_jax.tasks.Task.batch`."""
        rng = generator("random_vectors", split, seed, index)
        shape = (batch_size, self.length, FEATURES)
        return Batch(
            rng.normal(size=shape).astype(np.float32),
            rng.integers(CLASSES, size=batch_size).astype(np.int32),
            np.ones(batch_size, bool),
        )


class Classifier(NamedTuple):
    """A model with what a training step of it takes.

    Attributes:
      model: The model.
      create: Returns the run and its state before the first step.
      batch: A batch of random vectors and classes.
    """

    model: nn.Module
    create: partial[tuple[RunSpec, TrainState]]
    batch: Batch


def classifier(
    name: str,
    length: int,
    *,
    width: int,
    n_layers: int,
    batch: int = 8,
    remat: bool = False,
    scan_blocks: bool | None = None,
    recurrent: bool = True,
    learning_rate: float = 1e-3,
) -> Classifier:
    """Returns a classifier of sequences of vectors.

    Args:
      name: One of `RECURRENCES`, in pre-norm blocks with a GLU or of `Mamba`, or one of
        `MATRIX_LAYERS`.
      length: Number of steps.
      width: Number of channels.
      n_layers: Number of blocks.
      batch: Number of sequences.
      remat: See `SequenceModel`.
      scan_blocks: See `SequenceModel`.
      recurrent: If False, `Identity` is in the place of the recurrence, of those of
        `RECURRENCES`.
      learning_rate: Learning rate of AdamW, without weight decay.
    """
    layer: nn.Module
    if name in MATRIX_LAYERS:
        layer = MATRIX_LAYERS[name](width)
    else:
        recurrence = RECURRENCES[name] if recurrent else Identity()
        layer = RecurrentLayer(recurrence, ChannelMixing(kind="glu"))
        if name == "Mamba":
            layer = Mamba(recurrence)
    model = SequenceModel(
        encoder=VectorEncoder(width),
        block=Block(layer, prenorm=True),
        n_layers=n_layers,
        head=PooledHead(CLASSES),
        remat=remat,
        scan_blocks=scan_blocks,
    )
    task = RandomVectors(length)
    optimizer = Optimizer(learning_rate=learning_rate)
    first = partial(create, model, task, optimizer, seed=0)
    return Classifier(model, first, task.batch("train", 0, batch, seed=0))


LEARNING_RATE = 1e-3

TOLERANCE = 1e-3
"""Bound on the difference of the losses before the first step, relative to ours."""

MAMBA_TARGET = 2.0
"""What is asked for: a step of Mamba over one without its recurrence, at most."""

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
      of the recurrence (``identity``, of `RECURRENCES` alone) and of our step with a
      scan over the blocks (``scanned``), median and minimum; the ratios of ours to the
      others, with the ``target`` of Mamba over the identity, and the difference of the
      first losses of the plain and our step.

    Raises:
      ArithmeticError: The losses differ by more than `TOLERANCE`.
    """
    sizes: dict[str, Any] = {"width": width, "n_layers": n_layers, "batch": batch}
    for name, layer in LAYERS.items():
        logging.info("%s, %d steps", name, length)
        runs, losses = {}, {}
        for what, fields in OURS.items():
            if what == "identity" and name in MATRIX_LAYERS:
                continue
            case = classifier(
                name, length, **sizes, **fields, learning_rate=LEARNING_RATE
            )
            run, state = case.create()
            if what == "ours":
                params = jax.tree.map(jnp.copy, state.params)  # Steps donate theirs.
                runs["plain"], losses["plain"] = _plain(layer, params, case.batch)
            runs[what], losses[what] = our_step(run, state, case.batch)
        difference = abs(losses["plain"] / losses["ours"] - 1)
        if difference > TOLERANCE:
            raise ArithmeticError(
                f"the loss of {name} must be within {TOLERANCE} of ours, got a "
                f"difference of {difference:.2g}."
            )
        seconds = time_in_turns(runs, repeats=repeats)
        ours, ours_min = seconds["ours_s"], seconds["ours_min_s"]
        yield {
            "what": name,
            "length": length,
            **sizes,
            **seconds,
            **{
                f"of_{other}{suffix}": time / seconds[f"{other}{suffix}_s"]
                for other in runs
                if other != "ours"
                for suffix, time in (("", ours), ("_min", ours_min))
            },
            "difference": difference,
            "target": MAMBA_TARGET if name == "Mamba" else None,
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
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
        return jnp.mean(losses)

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
    u = _convolved(params["convolution"], u)
    y = plain.selective_scan(params["recurrent"]["recurrence"], u)
    return _dense(params["out"], d, y * jax.nn.silu(z))


def _convolved(params, u) -> Any:
    """A causal convolution of each channel, and SiLU."""
    taps = params["kernel"]
    width = taps.shape[-1]
    convolution = nn.Conv(
        width,
        (len(taps),),
        padding="CAUSAL",
        feature_group_count=width,
        use_bias="bias" in params,
    )
    variables = params | {"kernel": taps[:, None]}
    filtered: Any = convolution.apply({"params": variables}, u)
    return jax.nn.silu(filtered)


def _mamba2_layer(params, x):
    """Mamba-2 with keys that are repeated for each head, and the paper's chunks."""
    scalars = params["recurrent"]["recurrence"]
    heads, width = len(scalars["log_rate"]), params["norm"]["scale"].shape[0]
    d_u = params["convolution"]["kernel"].shape[-1]
    parts = _dense(params["in"], width + d_u + heads, x)
    z, u, raw = jnp.split(parts, [width, width + d_u], -1)
    u = _convolved(params["convolution"], u)
    values, B, C = jnp.split(u, [width, (width + d_u) // 2], -1)
    values = _heads(values, heads)
    B, C = (jnp.repeat(_heads(y, 1), heads, -2) for y in (B, C))
    dt = jax.nn.softplus(raw + scalars["step_bias"])
    log_decay = -dt * jnp.exp(scalars["log_rate"])
    y = _in_chunks(C, B, dt[..., None] * values, log_decay)
    y = (y + scalars["feedthrough"][:, None] * values).reshape(z.shape)
    y = _rms_norm(params["norm"], y * jax.nn.silu(z))
    return _dense(params["out"], x.shape[-1], y)


def _gated_delta_net_layer(params, x):
    """Gated DeltaNet by the WY form of its chunks."""
    scalars = params["recurrent"]["recurrence"]
    heads, d_value = len(scalars["log_rate"]), params["norm"]["scale"].shape[0]
    d_u = params["convolution"]["kernel"].shape[-1]
    width = heads * d_value
    parts = _dense(params["in"], width + d_u + 2 * heads, x)
    ends = [width, width + d_u, width + d_u + heads]
    z, u, a, b = jnp.split(parts, ends, -1)
    u = _convolved(params["convolution"], u)
    keys = (d_u - width) // 2
    q, k, v = (_heads(y, heads) for y in jnp.split(u, [keys, 2 * keys], -1))
    q, k = (y * jax.lax.rsqrt(jnp.sum(y**2, -1, keepdims=True) + 1e-6) for y in (q, k))
    rate = jnp.exp(scalars["log_rate"])
    log_decay = -rate * jax.nn.softplus(a + scalars["step_bias"])
    q = q * q.shape[-1] ** -0.5
    y = _rms_norm(params["norm"], _in_chunks(q, k, v, log_decay, jax.nn.sigmoid(b)))
    return _dense(params["out"], x.shape[-1], y.reshape(z.shape) * jax.nn.silu(z))


def _heads(x, heads):
    return x.reshape(*x.shape[:-1], heads, -1)


def _in_chunks(q, *arrays):
    return matrix.chunked(q, *arrays, size=min(64, q.shape[1]))


def _rms_norm(params, x) -> Any:
    return nn.RMSNorm(epsilon=1e-5).apply({"params": params}, x)


LAYERS: Mapping[str, PlainLayer] = {
    "S5": partial(_glu_layer, plain.s5),
    "S4D": partial(_glu_layer, plain.s4d),
    "DLR": partial(_glu_layer, plain.dlr),
    "CES": partial(_glu_layer, plain.ces),
    "Mamba": _mamba_layer,
    "Mamba-2": _mamba2_layer,
    "Gated DeltaNet": _gated_delta_net_layer,
}
"""The plain layers of the classifiers."""


DEPTH_MODELS = "S5", "DLR"

DEPTHS = (4, 8, 24)
"""Numbers of layers; the ratios are to the first one."""


def depth_rows(
    length: int,
    *,
    batch: int = 8,
    width: int = 128,
    repeats: int,
) -> Iterable[Row]:
    """Compiles the training step and the initialization of each classifier.

    Args:
      length: Number of steps of a sequence.
      batch: Number of sequences.
      width: Number of channels.
      repeats: Number of compilations of each, in turns; the minimum counts.

    Yields:
      A row for each model, with and without ``remat`` and ``scan_blocks``, and depth:
      CPU seconds of tracing, of lowering and of XLA for a training step, their sum,
      instructions of the compiled program and bytes of temporaries; the CPU seconds of
      compiling ``model.init``; and both sums relative to those of the first depth.
    """
    for name in DEPTH_MODELS:
        # What is imported or computed once per process is not part of a compilation.
        compile_step(classifier(name, length, width=width, n_layers=2, batch=batch))
        for remat, scan in itertools.product((False, True), (True, False)):
            cases = {
                n_layers: classifier(
                    name,
                    length,
                    width=width,
                    n_layers=n_layers,
                    batch=batch,
                    remat=remat,
                    scan_blocks=scan,
                )
                for n_layers in DEPTHS
            }
            logging.info("%s, remat %s, scan_blocks %s", name, remat, scan)
            costs = _minima(cases, repeats)
            first = costs[DEPTHS[0]]
            for n_layers, cost in costs.items():
                yield {
                    "what": name,
                    "length": length,
                    "batch": batch,
                    "width": width,
                    "layers": n_layers,
                    "remat": remat,
                    "scan_blocks": scan,
                    **cost,
                    "of_first": cost["compile_cpu_s"] / first["compile_cpu_s"],
                    "init_of_first": cost["init_cpu_s"] / first["init_cpu_s"],
                }


def _minima(cases, repeats) -> dict[int, Row]:
    """Compiles each classifier in turns; returns the costs of the fastest compilations.

    A machine is slower for minutes at a time.
    """
    costs = {n_layers: [] for n_layers in cases}
    for turn in range(repeats):
        for n_layers, case in cases.items():
            logging.info("%d layers, turn %d of %d", n_layers, turn + 1, repeats)
            costs[n_layers].append(compile_step(case))
    return {
        n_layers: min(turns, key=lambda cost: cost["compile_cpu_s"])
        | {"init_cpu_s": min(cost["init_cpu_s"] for cost in turns)}
        for n_layers, turns in costs.items()
    }


def compile_step(case) -> Row:
    """Compiles a step without what earlier calls have left in the caches of JAX."""
    run, state = abstract_state(case.create)
    jax.clear_caches()
    step = jax.jit(partial(train_step, run), donate_argnums=0)
    # CPU seconds of all threads, which do not depend on the number of cores.
    clock = [time.process_time()]
    traced = step.trace(state, case.batch)
    clock.append(time.process_time())
    lowered = traced.lower()
    clock.append(time.process_time())
    compiled = lowered.compile()
    clock.append(time.process_time())
    trace_s, lower_s, xla_s = (b - a for a, b in zip(clock, clock[1:], strict=False))
    memory = compiled.memory_analysis()
    return {
        "trace_cpu_s": trace_s,
        "lower_cpu_s": lower_s,
        "xla_cpu_s": xla_s,
        "compile_cpu_s": trace_s + lower_s + xla_s,
        "init_cpu_s": _init_cpu_s(case),
        "instructions": str(compiled.as_text()).count(" = "),
        "temp_bytes": memory.temp_size_in_bytes if memory else float("nan"),
    }


def _init_cpu_s(case):
    jax.clear_caches()
    start = time.process_time()
    init = jax.jit(case.model.init)
    init.lower(jax.random.key(0), case.batch.inputs[:1]).compile()
    return time.process_time() - start
