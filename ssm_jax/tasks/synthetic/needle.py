"""NeedleInHaystack: a number in a long text of bytes, asked at its end."""

import dataclasses
import functools
import string
from pathlib import Path
from typing import Annotated

import numpy as np
from typing_extensions import override

from ssm_jax.fields import Interval, PositiveInt
from ssm_jax.tasks import base, user_files
from ssm_jax.tasks.synthetic import tokens
from ssm_jax.tasks.text.tokens import N_BYTES

_LETTERS = np.frombuffer(string.ascii_uppercase.encode(), np.uint8)
_DIGITS = np.frombuffer(string.digits.encode(), np.uint8)
_FILLER = np.frombuffer(f"{string.ascii_lowercase} ".encode(), np.uint8)
_BEFORE, _BETWEEN, _BEHIND = (
    np.frombuffer(text, np.uint8) for text in (b"\nThe number of ", b" is ", b".\n")
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NeedleInHaystack(tokens.TokenTask):
    r"""Classification: the digits of a number that a long text of bytes contains.

    A line, ``The number of KEY is DIGITS.``, with random letters and digits, is put
    into other bytes, and the row ends with its beginning and the digits but for the
    last one: at each of the last steps the target is the next digit.

    What the task asks of a model: to keep a few bytes, which it has to recognize, over
    the whole rest of the text.

    Attributes:
      length: Number of steps of a row.
      n_letters: Number of letters of the key, in upper case.
      n_digits: Number of digits of the number.
      depth: Where the line is, as a part of the other bytes: 0 is their beginning, 1
        the end. None: drawn for each row, uniformly.
      file: File of the other bytes, of which a row has those from a random place on,
        and after its end those from its beginning. None: random letters in lower case
        and spaces, among which the line is the only one with digits.
      data_dir: Directory of ``file``, unless that is absolute.

    Batch:
      inputs: int32, ``(b, length)``, bytes from 1 on, as those of `TextFolder`, so that
        a language model is evaluated on the task as it is.
      targets: int32, ``(b, n_digits)``, for the last steps, the digits as bytes from 1
        on.
      loss_mask: bool, ``(b, n_digits)``, true everywhere.

    Splits: endless, and disjoint because each split, seed and index has its own random
    stream; they share ``file``. Nothing is downloaded.

    The number of 5 digits is that of the passkeys of Mohtashami and Jaggi, whose line
    is another. The published evaluation has texts of several lengths, and the line at
    several depths of each:

      >>> task = NeedleInHaystack()
      >>> cells = [
      ...     dataclasses.replace(task, length=length, depth=depth)
      ...     for length in (2**10, 2**15, 2**20) for depth in (0.0, 0.5, 1.0)
      ... ]

    A reduced setting is ``NeedleInHaystack(length=128, n_letters=1, n_digits=1)``.

    Raises:
      FileNotFoundError: At the first batch, if there is no such file.
      ValueError: A number is not positive, ``depth`` not in [0, 1], or the line and the
        question do not fit in ``length``; at the first batch, if the file is empty.

    Example:
      >>> task = NeedleInHaystack(length=75, depth=0.5, n_letters=2, n_digits=3)
      >>> batch = task.batch("train", 0, batch_size=1, seed=0)
      >>> bytes((batch.inputs[0] - 1).astype(np.uint8))
      b'sprbiismhoibe\nThe number of XE is 363.\ncvfofzggjnemc\nThe number of XE is 36'
      >>> bytes((batch.targets[0] - 1).astype(np.uint8))
      b'363'

    References:
      Mohtashami and Jaggi, `Landmark Attention: Random-Access Infinite Context Length
      for Transformers <https://arxiv.org/abs/2305.16300>`_, 2023; Hsieh et al.,
      `RULER: What's the Real Context Size of Your Long-Context Language Models?
      <https://arxiv.org/abs/2404.06654>`_, 2024
    """

    stream = "needle_in_haystack"

    length: PositiveInt = 1024
    n_letters: PositiveInt = 4
    n_digits: PositiveInt = 5
    depth: Annotated[float, Interval(ge=0, le=1)] | None = None
    file: str | None = None
    data_dir: str | None = None

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_length(-self._n_other(0), "the line and the question")

    def _n_other(self, length):
        """Number of bytes of a row that are of neither the line nor the question."""
        line = len(_BEFORE) + self.n_letters + len(_BETWEEN) + self.n_digits
        return length - 2 * line - len(_BEHIND) + 1

    @property
    @override
    def spec(self) -> base.TaskSpec:
        """A byte at each of the last steps."""
        return tokens.spec_of_tokens(
            length=self.length,
            vocabulary=N_BYTES,
            n_classes=N_BYTES,
            l_output=self.n_digits,
        )

    @property
    @override
    def chance(self) -> float:
        """Accuracy of any digit, one of ten."""
        return 0.1

    def data_files(self) -> dict[str, Path]:
        """Returns the path of the file, by its name; none without ``file``."""
        if self.file is None:
            return {}
        return user_files.data_files(user_files.path_of(self.data_dir, self.file))

    @override
    def draw(self, rng: np.random.Generator, size: int) -> base.Batch:
        n_other = self._n_other(self.length)
        key = rng.choice(_LETTERS, size=(size, self.n_letters))
        number = rng.choice(_DIGITS, size=(size, self.n_digits))
        depth = rng.random(size) if self.depth is None else np.full(size, self.depth)
        if self.file is None:
            other = rng.choice(_FILLER, size=(size, n_other))
        else:
            text = _read(user_files.path_of(self.data_dir, self.file))
            start = rng.integers(len(text), size=(size, 1))
            other = text[(start + np.arange(n_other)) % len(text)]
        rows = []
        for i, place in enumerate(np.rint(depth * n_other).astype(int)):
            line = [_BEFORE, key[i], _BETWEEN, number[i]]
            before, behind = other[i, :place], other[i, place:]
            # The digit of the last step is a target only.
            parts = [before, *line, _BEHIND, behind, *line[:-1], number[i, :-1]]
            rows.append(np.concatenate(parts))
        inputs = np.stack(rows).astype(np.int32) + 1
        targets = number.astype(np.int32) + 1
        return base.Batch(inputs, targets, loss_mask=np.ones(targets.shape, bool))


def _read(path: str) -> np.ndarray:
    """Returns the bytes of a file, uint8, ``(n,)``."""
    user_files.check_is_there(path)
    return _bytes(path, user_files.state_of(path))


# Read again if the file has changed since.
@functools.lru_cache(maxsize=4)
def _bytes(path, state):
    del state
    text = np.fromfile(path, np.uint8)
    if not len(text):
        raise ValueError(
            f"`file` must have at least one byte, got none in {path}; leave it out for "
            "random ones."
        )
    return text
