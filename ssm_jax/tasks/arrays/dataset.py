"""GrainTask: the examples of a `grain.MapDataset`, or of several."""

import dataclasses
import functools
import sys
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from ssm_jax.fields import PositiveInt, check_fields
from ssm_jax.tasks import base, fingerprint, order
from ssm_jax.tasks.arrays import checks


@dataclasses.dataclass(frozen=True, kw_only=True)
class GrainTask:
    """Regression or classification on the examples of a `grain.MapDataset`.

    An example is a dict. Its ``inputs`` are numbers ``(l, d_input)`` or tokens,
    integers in ``[0, d_input)``, ``(l,)``; its ``targets`` are numbers ``(d_output,)``
    or a class, an integer in ``[0, d_output)``, with ``per_step`` those of each step,
    ``(l, d_output)`` or ``(l,)``. ``l`` is ``length``, with ``padded`` at most that.

    The task shuffles the examples, repeats them and forms batches: datasets do not.
    In epoch ``e`` of training, example ``i`` of ``n`` is element ``e * n + i`` of the
    dataset, for which ``random_map`` draws other numbers than in the epoch before. They
    depend on the seed of the dataset, and the order on that of the run.

    Attributes:
      source: A frozen dataclass with a method ``dataset(split)``, which returns the
        `grain.MapDataset` of a split, ``"train"``, ``"validation"`` or ``"test"``. Its
        ``data_files()``, if it has that, are those of the task; see `Task`.
      length: Number of steps of a sequence, with padding.
      inputs: ``"vector"`` for numbers, ``"token"`` for tokens.
      d_input: Number of features of a step, or size of the vocabulary.
      targets: ``"regression"`` for numbers, ``"classification"`` for classes.
      d_output: Number of values, or of classes.
      per_step: Whether each step has a target.
      padded: Whether sequences may have fewer steps than ``length``.

    Batch:
      inputs: float32, ``(b, length, d_input)``, or int32, ``(b, length)``.
      targets: float32 or int32, as in the examples, with the axis ``b`` in front.
      loss_mask: bool, ``(b,)``, or ``(b, length)`` with ``per_step``; false in the rows
        that pad the last batch and on padded steps.
      mask: bool, ``(b, length)``, false on padded steps; None without ``padded``.

    Splits: the datasets of the source, which keeps them disjoint.

    Raises:
      ValueError: A field is out of range; at the first batch or count, if a dataset is
        empty or endless; at a batch, if an example does not fit the fields.

    Example:
      >>> @dataclasses.dataclass(frozen=True)
      ... class Counted:
      ...     def dataset(self, split):
      ...         from grain import MapDataset
      ...         return MapDataset.range(20).map(
      ...             lambda i: {"inputs": np.full((5, 3), i), "targets": i % 2}
      ...         )
      >>> task = GrainTask(
      ...     source=Counted(), length=5, inputs="vector", d_input=3,
      ...     targets="classification", d_output=2,
      ... )
      >>> task.spec.length, task.spec.d_output
      (5, 2)

    References:
      `Grain <https://github.com/google/grain>`_, the extra ``[grain]``
    """

    source: Any
    length: PositiveInt
    inputs: Literal["vector", "token"]
    d_input: PositiveInt
    targets: Literal["regression", "classification"]
    d_output: PositiveInt
    per_step: bool = False
    padded: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        if not callable(getattr(self.source, "dataset", None)):
            raise ValueError(
                f"`source` must have a method `dataset`, got {self.source!r}; it "
                "returns the grain.MapDataset of a split."
            )

    @property
    def spec(self) -> base.TaskSpec:
        """As the fields state it."""
        return base.TaskSpec(
            length=self.length,
            inputs=self.inputs,
            d_input=self.d_input,
            targets=self.targets,
            d_output=self.d_output,
            l_output=self.length if self.per_step else None,
        )

    def data_files(self) -> Mapping[str, Any]:
        """Returns the files of the source, none if it has no ``data_files``."""
        return fingerprint.data_files(self.source)

    def n_examples(self, split: base.Split) -> int:
        """Returns the number of examples in a split."""
        base.check_split(split)
        n = len(_dataset(self.source, split))
        # The length that grain gives to a repeated dataset.
        if not 0 < n < sys.maxsize:
            raise ValueError(
                f"`source` must have a finite number of examples in the {split} split, "
                f"got {n}; the task repeats and shuffles it."
            )
        return n

    def batch(
        self,
        split: base.Split,
        index: int,
        batch_size: int,
        seed: int,
        *,
        rows: slice | None = None,
    ) -> base.Batch:
        """Returns batch ``index``; see `ssm_jax.tasks.Task.batch`."""
        n = self.n_examples(split)
        indices, loss_mask = order.shuffled_indices(
            n, split, index, batch_size, seed, rows
        )
        n_of_epoch = base.n_batches(self, split, batch_size) or 1
        # Elements beyond the last are those of further epochs.
        indices = indices + n * (index // n_of_epoch)
        select = functools.partial(self._select, split)
        return order.read_once(select, indices, loss_mask)

    def _select(self, split, indices, loss_mask):
        """A batch of elements of the dataset of a split."""
        dataset = _dataset(self.source, split)
        examples = [
            self._convert_example(dataset[element], f"element {element} of {split}")
            for element in indices.tolist()
        ]
        inputs, targets, mask = (np.stack(part) for part in zip(*examples, strict=True))
        if self.per_step:
            loss_mask = loss_mask[:, None] & mask
        return base.Batch(inputs, targets, loss_mask, mask if self.padded else None)

    def _convert_example(self, example, where):
        """Inputs, targets and mask of an example, padded to the length."""
        is_dict = isinstance(example, Mapping)
        if not (is_dict and {"inputs", "targets"} <= example.keys()):
            got = list(example) if is_dict else type(example).__name__
            raise ValueError(
                "`source` must have examples that are dicts with inputs and targets, "
                f"got {got} as {where}; `map` forms them, and `filter` leaves None."
            )
        inputs, targets = (np.asarray(example[name]) for name in ("inputs", "targets"))
        steps = len(inputs) if self.padded and inputs.ndim else self.length
        if not 1 <= steps <= self.length:
            raise ValueError(
                f"`inputs` must have from 1 to {self.length} steps, got {steps} in "
                f"{where}; `length` is the maximum."
            )
        per_step = (steps,) if self.per_step else ()
        # A vector, or an integer, for each step or for the example.
        kinds = {
            "inputs": (inputs, (steps,), self.d_input, self.inputs == "vector"),
            "targets": (targets, per_step, self.d_output, self.targets == "regression"),
        }
        inputs, targets = (
            checks.convert(array, name, (*shape, size), None, where)
            if vector
            else checks.convert(array, name, shape, size, where)
            for name, (array, shape, size, vector) in kinds.items()
        )
        if self.per_step:
            targets = self._pad(targets)
        return self._pad(inputs), targets, np.arange(self.length) < steps

    def _pad(self, array):
        """Zeros after the last step."""
        n_padded = self.length - len(array)
        return np.pad(array, [(0, n_padded)] + [(0, 0)] * (array.ndim - 1))


@functools.lru_cache(maxsize=12)
def _dataset(source, split):
    return source.dataset(split)
