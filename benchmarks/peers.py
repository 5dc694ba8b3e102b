"""Our layers compared to the same layers as their authors' code evaluates them."""

import importlib
import importlib.util
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import plain
from benchmarks.measurement import Row, time_in_turns
from ssm_jax.kernels import linear_recurrence
from ssm_jax.kernels.platforms import target_platform
from ssm_jax.recurrences import DLR, GRU, LRU, S4D, S5, Recurrence, SelectiveSSM
from ssm_jax.recurrences.families.base import Params
from ssm_jax.types import Activations, Method, Outputs, PyTree

TOLERANCE = 2e-3
"""Bound on the difference of outputs, relative to the largest one. The peers multiply a
rounded phase by the step, so that their own error grows with the length."""

SELECTIVE_SIZES = {512: (8, 64), 1024: (4, 512), 4096: (1, 128)}
"""Batch and width of the timed selective SSMs, by length."""

SELECTIVE_TARGETS = {"forward_target": 0.75, "grad_target": 0.5}
"""What ``forward_ratio`` and ``grad_ratio`` are to be at most, on CPUs."""

HAS_TORCH = importlib.util.find_spec("torch") is not None
"""Whether torch is installed. It is no dependency: without it, DLR and S4D are compared
to the same form in plain JAX only."""

Layer = Callable[[Any, Any], Any]


class Comparison(NamedTuple):
    """A layer and the layers it is compared to.

    Attributes:
      ours: Function of parameters and input.
      params: Parameters, the same for all.
      width: Width of the input.
      peers: Plain forms of the same function in JAX, by name.
      torch: Plain form in torch, or None.
    """

    ours: Layer
    params: Params
    width: int
    peers: Mapping[str, Layer]
    torch: Layer | None = None


def layers(width: int = 128, n: int = 64) -> dict[str, Comparison]:
    """Returns what is compared.

    Args:
      width: Number of channels; half of them for the selective SSM.
      n: Number of states; 16 per channel for the selective SSM.
    """

    def comparison(
        recurrence: Recurrence, peers: Mapping[str, Layer], width=width, **torch
    ):
        params = recurrence.init(jax.random.key(0), width)
        ours = partial(_apply, recurrence)
        return Comparison(ours, params, width, peers, **torch)

    associative = "associative_scan of pairs"
    convolution = "powers and rfft"
    return {
        "S5": comparison(S5(d_state=2 * n, blocks=1), {associative: plain.s5}),
        "LRU": comparison(
            LRU(d_state=n, r_min=0.9, r_max=0.999), {associative: plain.lru}
        ),
        "SelectiveSSM": comparison(
            SelectiveSSM(),
            {
                "lax.scan": plain.selective_scan,
                "associative_scan": plain.selective_associative,
            },
            width // 2,
        ),
        "gated scan": Comparison(
            _gated_scan, _gate_params(width), width, {"lax.scan": plain.gated_scan}
        ),
        "GRU": comparison(GRU(d_state=n), {"lax.scan of the cell": plain.gru}),
        "DLR": comparison(
            DLR(d_state=n, dt_min=1e-3), {convolution: plain.dlr}, torch=plain.dlr
        ),
        "S4D": comparison(S4D(d_state=n), {convolution: plain.s4d}, torch=plain.s4d),
    }


def _apply(recurrence, params, x, method: Method = "auto"):
    return recurrence.apply(params, x, method=method)[0]


def _gate_params(width: int) -> dict[str, jax.Array]:
    key_r, key_i = jax.random.split(jax.random.key(0))
    return {
        "rate": jnp.linspace(-4.0, 0.0, width),
        "W_r": jax.random.normal(key_r, (width, width)) / width**0.5,
        "W_i": jax.random.normal(key_i, (width, width)) / width**0.5,
    }


def _gated_scan(params: Params, x: Activations) -> Outputs:
    return linear_recurrence(*plain.gates(params, x))[0]


def peer_rows(
    length: int, *, batch: int = 8, width: int = 128, n: int = 64, repeats: int
) -> Iterable[Row]:
    """Times each of `layers` and its peers in turns.

    Args:
      length: Number of steps.
      batch: Number of sequences.
      width: Number of channels; see `layers`.
      n: Number of states; see `layers`.
      repeats: Number of timed turns.

    Returns:
      The rows of `comparison_rows`.
    """
    return comparison_rows(layers(width, n), length, batch, repeats)


def selective_rows(
    length: int, *, batch: int = 0, width: int = 0, n: int = 16, repeats: int
) -> Iterator[Row]:
    """Times the selective SSM and a plain scan of its equations in turns.

    Args:
      length: Number of steps.
      batch: Number of sequences. 0: that of `SELECTIVE_SIZES`, or 8.
      width: Number of channels. 0: that of `SELECTIVE_SIZES`, or 64.
      n: Number of states of a channel.
      repeats: Number of timed turns.

    Yields:
      The rows of `comparison_rows`, by ``"sequential"`` on CPUs, else by ``"pallas"``.
      On CPUs those of `SELECTIVE_SIZES` with 16 states have `SELECTIVE_TARGETS`.
    """
    size = SELECTIVE_SIZES.get(length, (8, 64))
    batch, width = batch or size[0], width or size[1]
    selective = SelectiveSSM(d_state=n)
    on_cpu = target_platform() == "cpu"
    method = "sequential" if on_cpu else "pallas"
    has_targets = on_cpu and n == 16 and (batch, width) == SELECTIVE_SIZES.get(length)
    targets = SELECTIVE_TARGETS if has_targets else {}
    params = selective.init(jax.random.key(0), width)
    ours = partial(_apply, selective, method=method)
    peers = {"lax.scan": plain.selective_steps}
    comparisons = {f"SelectiveSSM, {method}": Comparison(ours, params, width, peers)}
    for row in comparison_rows(comparisons, length, batch, repeats):
        yield row | {"states": n} | targets


def comparison_rows(
    layers: Mapping[str, Comparison], length: int, batch: int, repeats: int
) -> Iterator[Row]:
    """Times layers and their peers in turns.

    Args:
      layers: What is compared, by name.
      length: Number of steps.
      batch: Number of sequences.
      repeats: Number of timed turns.

    Yields:
      A row for each peer: seconds of ours and of the peer, median and minimum, and
      their ratios, of the output (``forward``) and of a weighted sum of it with the
      gradient in parameters and input (``grad``); the maximum difference of the outputs
      relative to the largest one, and that of the gradients by their norms.

    Raises:
      ArithmeticError: A peer differs from ours by more than `TOLERANCE`.
    """
    for name, comparison in layers.items():
        logging.info("%s, %d steps", name, length)
        keys = jax.random.split(jax.random.key(1))
        shape = batch, length, comparison.width
        x = jax.random.normal(keys[0], shape)
        y = jax.eval_shape(comparison.ours, comparison.params, x)
        weight = jax.random.normal(keys[1], y.shape)
        runs = {
            peer: _runs(function, comparison.params, x, weight)
            for peer, function in {"ours": comparison.ours, **comparison.peers}.items()
        }
        if comparison.torch is not None and HAS_TORCH:
            runs["torch"] = _torch_runs(comparison.torch, comparison.params, x, weight)
        seconds = {
            what: time_in_turns(
                {peer: run[what] for peer, run in runs.items()}, repeats=repeats
            )
            for what in ("forward", "grad")
        }
        expected, expected_gradient = (
            runs["ours"][what]() for what in ("forward", "grad")
        )
        for peer in list(runs)[1:]:
            result, gradient = (runs[peer][what]() for what in ("forward", "grad"))
            difference = _difference(result, expected, jnp.inf)
            if difference > TOLERANCE:
                raise ArithmeticError(
                    f"outputs of {name} by {peer} must be within {TOLERANCE} of ours, "
                    f"got {difference:.2g}."
                )
            yield {
                "what": name,
                "peer": peer,
                "length": length,
                "batch": batch,
                "width": comparison.width,
                **_times("forward", seconds["forward"], peer),
                **_times("grad", seconds["grad"], peer),
                "difference": difference,
                "gradient_difference": _difference(gradient, expected_gradient, 2),
            }


def _times(what, seconds, peer):
    ours, ours_min = seconds["ours_s"], seconds["ours_min_s"]
    return {
        f"{what}_s": ours,
        f"{what}_min_s": ours_min,
        f"{what}_peer_s": seconds[f"{peer}_s"],
        f"{what}_peer_min_s": seconds[f"{peer}_min_s"],
        f"{what}_ratio": ours / seconds[f"{peer}_s"],
        f"{what}_ratio_min": ours_min / seconds[f"{peer}_min_s"],
    }


def _difference(result: PyTree, expected: PyTree, order: float) -> float:
    """Maximum or root of the sum of squares of the difference, relative to wanted."""

    def flat(tree):
        leaves = jax.tree.leaves(jax.tree.map(np.asarray, tree))
        return np.concatenate([leaf.ravel() for leaf in leaves]).astype(np.float64)

    norm = partial(np.linalg.norm, ord=order)
    return float(norm(flat(result) - flat(expected)) / norm(flat(expected)))


def _runs(function: Layer, params: Params, x, weight) -> dict[str, Callable[[], Any]]:
    """Compiles the output and the gradient in parameters and input."""

    def loss(params, x, weight):
        return jnp.vdot(function(params, x), weight)

    forward = jax.jit(function).lower(params, x).compile()
    gradient = jax.value_and_grad(loss, (0, 1))
    gradient = jax.jit(gradient).lower(params, x, weight).compile()
    return {
        "forward": partial(forward, params, x),
        "grad": lambda: gradient(params, x, weight)[1],
    }


def _torch_runs(function, params, x, weight) -> dict[str, Callable[[], Any]]:
    """As `_runs`, of a function evaluated by torch."""
    torch = importlib.import_module("torch")

    def tensor(values):
        return torch.tensor(np.asarray(values))

    names = sorted(params)
    leaves = [tensor(params[name]).requires_grad_() for name in names]
    x, weight = tensor(x).requires_grad_(), tensor(weight)

    def output():
        return function(dict(zip(names, leaves, strict=True)), x, torch)

    def forward():
        with torch.no_grad():
            return output().numpy()

    def gradient():
        loss = (output() * weight).sum()
        *gradients, x_gradient = torch.autograd.grad(loss, [*leaves, x])
        named = zip(names, (leaf.numpy() for leaf in gradients), strict=True)
        return dict(named), x_gradient.numpy()

    return {"forward": forward, "grad": gradient}
