"""Training steps of one model by each way to share it among the devices."""

import logging
import time
from collections.abc import Iterator
from typing import Any

import jax

from benchmarks.measurement import Row, time_in_turns
from ssm_jax.layers import Mamba
from ssm_jax.models import Block, SequenceModel, TokenEncoder
from ssm_jax.recurrences import SelectiveSSM
from ssm_jax.tasks.base import Batch, Split, TaskSpec, generator
from ssm_jax.training import DataParallel, Optimizer, create
from ssm_jax.training.parallel import mesh_shape

VOCABULARY = 4096


class RandomTokens:
    """Sequences of random tokens.

    Args:
      length: Number of tokens.
    """

    def __init__(self, length: int):
        """Stores the spec of a language model."""
        self.spec = TaskSpec(
            length=length,
            inputs="token",
            d_input=VOCABULARY,
            targets="classification",
            d_output=VOCABULARY,
            l_output=length,
            language=True,
        )

    def n_examples(self, split: Split) -> None:
        """Returns None, for an endless task."""
        del split

    def batch(self, split: Split, index: int, batch_size: int, seed: int) -> Batch:
        """Returns tokens, each the target of the one before."""
        rng = generator("random_tokens", split, seed, index)
        shape = batch_size, self.spec.length + 1
        tokens = rng.integers(0, VOCABULARY, shape, dtype="int32")
        return Batch(tokens[:, :-1], tokens[:, 1:], tokens[:, 1:] >= 0)


def mesh_rows(
    length: int, *, width: int = 256, layers: int = 8, batch: int = 8, repeats: int
) -> Iterator[Row]:
    """Times a step of Mamba with 4,096 tokens by each of the ways.

    On CPUs, ``XLA_FLAGS=--xla_force_host_platform_device_count=8`` makes devices that
    share the cores: their collectives are copies, and times say little of accelerators.

    Args:
      length: Number of tokens of a sequence.
      width: Number of channels, ``d_model``.
      layers: Number of blocks.
      batch: Number of sequences, a multiple of the number of devices.
      repeats: Number of timed turns.

    Yields:
      A row for ``pmap``, ``shard_map`` and each mesh: seconds of tracing, lowering and
      compiling, median milliseconds of a step, and MiB on each device of the state and
      of intermediate values.
    """
    n = jax.device_count()
    task = RandomTokens(length)
    model = SequenceModel(
        encoder=TokenEncoder(width, VOCABULARY),
        block=Block(Mamba(SelectiveSSM(), n_layers=layers), norm="rms", prenorm=True),
        n_layers=layers,
        head=None,
        scan_blocks=True,
        remat=True,
    )
    run, state = create(model, task, Optimizer(learning_rate=1e-3), seed=0)
    meshes = [None, *(f"data={n // m},model={m}" for m in (2, 4, 8) if n % m == 0)]
    steps, rows = {}, {}
    for kind, mesh in [("pmap", None), *(("shard_map", mesh) for mesh in meshes)]:
        name = mesh or kind
        logging.info("%s", name)
        parallel = DataParallel(kind, None, *mesh_shape(mesh, n))
        placed = parallel.place(state)
        rows_of_batch = parallel.split(task.batch("train", 0, batch, 0), task.spec)
        began = time.perf_counter()
        compiled = parallel.compiled_train_step(run, placed, rows_of_batch)
        memory: Any = compiled.memory_analysis()
        rows[name] = {
            "parallel": kind,
            "mesh": mesh or "",
            "devices": n,
            "compile_s": time.perf_counter() - began,
            "state_mib": memory.argument_size_in_bytes / 2**20,
            "temp_mib": memory.temp_size_in_bytes / 2**20,
        }
        steps[name] = _Steps(parallel.train_step(run), placed, rows_of_batch)
    times = time_in_turns(steps, repeats=repeats)
    for name, row in rows.items():
        yield row | {"length": length, "step_ms": 1e3 * times[f"{name}_s"]}


class _Steps:
    """Takes a step at each call, since a step donates its state."""

    def __init__(self, step, state, batch):
        self._step, self._state, self._batch = step, state, batch

    def __call__(self):
        self._state, sums = self._step(self._state, self._batch)
        return sums, self._state.params
