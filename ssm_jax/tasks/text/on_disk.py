"""Tokens of texts that are larger than the memory: windows are read when needed."""

import bisect
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from ssm_jax.tasks.text import tokens

Part = tuple[float, float]
"""Where the part of a file that is read begins and ends, as fractions of its bytes."""

WHOLE: Part = (0.0, 1.0)


class ByteFiles:
    """Files, read as bytes, as one sequence of tokens.

    A separator is before each file and after the last. Slices are read from the files,
    of which none is mapped or kept open: a corpus may have more files than a process
    may open.

    Attributes:
      files: The files.
      separator: The token between files.

    Example:
      >>> import tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     paths = [Path(folder, name) for name in ("a", "b")]
      ...     _ = [path.write_text("abc") for path in paths]
      ...     text = ByteFiles(paths, separator=0)
      ...     print(len(text), text[2:6])
      9 [ 99 100   0  98]
    """

    def __init__(self, files: Sequence[Path], separator: int, part: Part = WHOLE):
        """Reads the sizes of the files.

        Args:
          files: The files.
          separator: The token between files.
          part: The part that is read of each file.

        Raises:
          ValueError: There are no bytes in that part of a file.
        """
        self.files, self.separator = files, separator
        spans = [span(file, part) for file in files]
        self._starts, sizes = zip(*spans, strict=True)
        for file, size in zip(files, sizes, strict=True):
            check_text(file, size)
        # Position of the separator before each file, and of the last one.
        self._edges = np.cumsum([0, *(size + 1 for size in sizes)]).tolist()

    def __len__(self) -> int:
        """Returns the number of tokens, separators included."""
        return self._edges[-1] + 1

    def __getitem__(self, part: slice) -> np.ndarray:
        """Reads consecutive tokens, uint16.

        Raises:
          ValueError: A file is shorter than it was.
        """
        start, stop, _ = part.indices(len(self))
        result = np.full(max(stop - start, 0), self.separator, np.uint16)
        first = bisect.bisect_right(self._edges, start) - 1
        last = min(bisect.bisect_left(self._edges, stop), len(self.files))
        for i in range(first, last):
            # The bytes of a file follow its separator, which is in `found`.
            begin = max(start, self._edges[i] + 1)
            end = min(stop, self._edges[i + 1])
            if begin < end:
                file_tokens = self._read(i, begin - self._edges[i] - 1, end - begin)
                result[begin - start : end - start] = file_tokens
        return result

    def _read(self, i, offset, size):
        """The tokens of ``size`` bytes of a file."""
        file = self.files[i]
        with file.open("rb") as stream:
            stream.seek(self._starts[i] + offset)
            data = stream.read(size)
        if len(data) < size:
            raise ValueError(
                f"`data_dir` must hold files that do not change during a run, got "
                f"{file}, shorter by {size - len(data)} bytes; start the run again."
            )
        return tokens.from_bytes(data)


def map_documents(
    files: Sequence[Path], rows: Iterable[np.ndarray], separator: np.ndarray
) -> np.ndarray:
    """Writes tokens of documents to a temporary file, and maps it to memory.

    Args:
      files: The file of each document.
      rows: The tokens of each document, integers ``(n,)``.
      separator: The token between documents, ``(1,)``, in the type of the result.

    Returns:
      All documents, with a separator before each and after the last, read-only. The
      file is removed when the process ends; ``TMPDIR`` is its directory.

    Raises:
      ValueError: A document has no tokens.
    """
    # Without a name, so that it is removed however the process ends.
    with tempfile.TemporaryFile() as stream:
        stream.write(separator.tobytes())
        for file, row in zip(files, rows, strict=True):
            check_text(file, len(row))
            stream.write(row.astype(separator.dtype).tobytes())
            stream.write(separator.tobytes())
        stream.flush()
        return np.memmap(stream, separator.dtype, "r")


def span(file: Path, part: Part) -> tuple[int, int]:
    """Returns the first byte and the number of bytes of a part of a file.

    Example:
      >>> import tempfile
      >>> with tempfile.NamedTemporaryFile() as file:
      ...     _ = file.write(bytes(20))
      ...     file.flush()
      ...     span(Path(file.name), (0.8, 0.9))
      (16, 2)
    """
    size = file.stat().st_size
    start, stop = (int(size * fraction) for fraction in part)
    return start, stop - start


def check_text(file: Path, size: int) -> None:
    """Raises ValueError for a file without text."""
    if size == 0:
        raise ValueError(
            f"`data_dir` must hold text in each file, for each split that reads it, "
            f"got none in {file}; remove it, or put more text there."
        )
