"""Metrics of a run on the terminal, in TensorBoard and in Weights & Biases."""

import contextlib
import importlib
import json
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from absl import logging
from tqdm import tqdm

from ssm_jax.training.workdir import WorkDir

_PACKAGES = {"tensorboard": "tensorboardX", "wandb": "wandb"}
WRITERS = tuple(_PACKAGES)
"""Names of writers, which are those of the extras that install their packages."""


@runtime_checkable
class Writer(Protocol):
    """Receives the metrics of a run, as those of ``clu.metric_writers`` do."""

    def write_scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        """Writes the metrics of a step; steps increase."""

    def close(self) -> None:
        """Writes what is left and closes."""


class _TensorBoard:
    def __init__(self, module, directory, start):
        # A run that was killed logs the steps since its checkpoint again. The names
        # of files have the second; a restart within it would overwrite the file.
        self._writer = module.SummaryWriter(
            str(directory / "tensorboard"),
            purge_step=start + 1 if start else None,
            filename_suffix=f".{start}",
        )

    def write_scalars(self, step, scalars):
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, step)

    def close(self):
        self._writer.close()


class _Wandb:
    def __init__(self, module, directory, start):
        # The run of this id continues; it ignores steps that it has.
        work, name = WorkDir(directory), "wandb.json"
        known = (work.read(name) if start else None) or {}
        self._run = module.init(
            dir=str(directory),
            name=directory.name,
            config=json.loads((directory / "config.json").read_text()),
            id=known.get("id"),
            resume="allow",
        )
        work.write(name, {"id": self._run.id})

    def write_scalars(self, step, scalars):
        self._run.log(dict(scalars), step=step)

    def close(self):
        self._run.finish()


_CLASSES = {"tensorboard": _TensorBoard, "wandb": _Wandb}


def check_writers(names: Iterable[str]) -> dict[str, Any]:
    """Imports the packages of writers.

    Args:
      names: Names of `WRITERS`.

    Returns:
      The package of each name.

    Raises:
      ValueError: A name is unknown, or its package is not installed.
    """
    modules = {}
    for name in names:
        if name not in _PACKAGES:
            raise ValueError(
                f"`writers` must be among {', '.join(WRITERS)}, got {name!r}."
            )
        try:
            modules[name] = importlib.import_module(_PACKAGES[name])
        except ModuleNotFoundError as error:
            raise ValueError(
                f"`writers` must be installed, got {name!r} without {error.name}; "
                f"`pip install ssm_jax[{name}]` installs it."
            ) from error
    return modules


@contextlib.contextmanager
def open_writers(
    names: Sequence[str], directory: Path, start: int
) -> Iterator[list[Writer]]:
    """Opens writers of a run and closes them at the end of the block.

    Args:
      names: Names of `WRITERS`.
      directory: Work dir of the run; TensorBoard's files are in ``tensorboard``, and
        ``wandb.json`` has the id of the run of Weights & Biases.
      start: Number of steps taken before; those after it that were written before are
        replaced.

    Raises:
      ValueError: A name is unknown, or its package is not installed.
    """
    with contextlib.ExitStack() as stack:
        writers = []
        for name, module in check_writers(names).items():
            writer = _CLASSES[name](module, directory, start)
            stack.callback(writer.close)
            writers.append(writer)
        yield writers


@contextlib.contextmanager
def show_time(what: str, bar: tqdm | None = None) -> Iterator[None]:
    """Shows that something takes long, and the seconds that it has taken.

    A terminal shows both until it ends; a log has a line at the start and one at the
    end.

    Args:
      what: What the block does, such as ``"compiling the training step"``.
      bar: A bar on the terminal that shows it. None: a line of its own.
    """
    began, ended = time.perf_counter(), threading.Event()
    if not sys.stderr.isatty():
        logging.info("%s", what)
        yield
        logging.info("%s took %.1f s", what, time.perf_counter() - began)
        return
    with contextlib.ExitStack() as stack:
        if bar is None:
            line = stack.enter_context(tqdm(bar_format="{desc}", leave=False))
            show = line.set_description_str
        else:
            show = bar.set_postfix_str

        def redraw():
            while not ended.wait(1):
                show(f"{what}, {time.perf_counter() - began:.0f} s")

        show(what)
        thread = threading.Thread(target=redraw, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            show("")


class Progress(contextlib.AbstractContextManager["Progress"]):
    """Shows the progress of a run.

    Args:
      start: Number of steps already taken.
      steps: Total number of steps.
    """

    def __init__(self, start: int, steps: int):
        """Draws the bar if standard error is a terminal."""
        self._steps = steps
        # In a file each redraw of the bar would be appended to the log.
        terminal = sys.stderr.isatty()
        self._bar = (
            tqdm(total=steps, initial=start, unit="step", dynamic_ncols=True)
            if terminal
            else None
        )

    def compiling(self, what: str) -> contextlib.AbstractContextManager[None]:
        """Shows in the block that a step is compiled, and for how long."""
        return show_time(f"compiling the {what}", self._bar)

    def show(self, step: int, measured: Mapping[str, float | None]) -> None:
        """Advances to a step and shows its metrics, but those that are None."""
        text = " ".join(
            f"{name} {value:.4g}"
            for name, value in measured.items()
            if value is not None
        )
        if self._bar is None:
            logging.info("step %d of %d: %s", step, self._steps, text)
        else:
            # `update` takes a difference and redraws, so the bar is not refreshed
            # twice.
            self._bar.set_postfix_str(text, refresh=False)
            self._bar.update(step - self._bar.n)

    def __exit__(self, *error: object) -> None:
        """Closes the bar, which stays on the terminal."""
        if self._bar is not None:
            self._bar.close()
