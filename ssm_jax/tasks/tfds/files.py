"""Published files: archives and tables; errors name the file and line."""

import contextlib
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ssm_jax.files import max_unpacked

_DAMAGED = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError)


@dataclass(frozen=True, kw_only=True)
class Published:
    """The files of a published data set.

    Attributes:
      publisher: Where the files are published.
      wanted: For each file its possible names, in the order of preference.
      in_tfds: Whether TFDS has a builder that downloads the files.
    """

    publisher: str
    wanted: tuple[tuple[str, ...], ...]
    in_tfds: bool = True

    def describe_wanted(self) -> str:
        """Returns the names of the files and where they are published."""
        names = ", ".join(" or ".join(names) for names in self.wanted)
        return f"{names} (from {self.publisher})"

    def find(self, manual_dir: Path) -> list[Path]:
        """Returns the paths of the files in a directory.

        Raises:
          FileNotFoundError: A file does not exist under any of its names.
        """
        paths, missing = [], []
        for names in self.wanted:
            existing = [
                manual_dir / name for name in names if (manual_dir / name).exists()
            ]
            # The preferred name, if several exist.
            paths += existing[:1]
            missing += [] if existing else [names[0]]
        if missing:
            raise FileNotFoundError(
                f"`--manual_dir` must hold {self.describe_wanted()}, got {manual_dir} "
                f"without {', '.join(missing)}; copy them there unchanged."
            )
        return paths


def invalid(location: object, rule: str, got: object) -> ValueError:
    """Returns the error for a file, line or record with invalid contents."""
    return ValueError(
        f"{location} must {rule}, got {got}; download the file from its publisher."
    )


def check_unpacked(path: Path, n_bytes: int) -> None:
    """Raises ValueError if an archive unpacks to more than one of its size may."""
    if n_bytes > (bound := max_unpacked(path)):
        raise invalid(path, f"unpack to at most {bound:,} bytes at once", "more")


@contextlib.contextmanager
def report_damage(path: Path) -> Iterator[None]:
    """Converts the exceptions of a damaged archive to a ValueError that names it."""
    try:
        yield
    except _DAMAGED as error:
        raise invalid(
            path, "be complete", str(error) or type(error).__name__
        ) from error
    except OSError as error:  # gzip raises OSError without a file name.
        if error.filename is None and error.errno is None:
            raise invalid(path, "be complete", error) from error
        raise


def members(path: Path) -> Iterator[tuple[PurePosixPath, bytes]]:
    """Yields the path and content of each file of a directory or tar archive.

    The paths of a directory start with its name, as those of its archive do.
    """
    if path.is_dir():
        # Sorted: the order of a file system differs between machines.
        for file in sorted(path.rglob("*")):
            if file.is_file():
                inside = PurePosixPath(path.name, *file.relative_to(path).parts)
                yield inside, file.read_bytes()
        return
    # As a stream: seeking in a compressed archive would decompress it again.
    with report_damage(path), tarfile.open(path, "r|*") as archive:
        for member in archive:
            if member.isfile():
                check_unpacked(path, member.size)
                content = archive.extractfile(member)
                assert content is not None  # None only for members that are not files.
                yield PurePosixPath(member.name), content.read()


def rows(path: Path, file: str | None = None) -> Iterator[tuple[str, list[str]]]:
    """Yields the rows of a table of tab-separated UTF-8 text.

    Quotation marks have no special meaning. Empty lines are skipped.

    Args:
      path: The table, or a directory or zip archive that holds it.
      file: Path of the table in the directory or archive.

    Yields:
      The location of each row, ``FILE:LINE``, and its fields.

    Raises:
      FileNotFoundError: The directory or archive does not hold the table.
      ValueError: The archive is damaged, or a line is not UTF-8.
    """
    table = path
    with report_damage(path):
        if file is not None:
            table = (zipfile.Path(path) if path.is_file() else path) / file
        if not table.exists():
            raise FileNotFoundError(f"{path} must hold {file}, got no such file in it.")
        # A byte order mark is removed. Invalid bytes become surrogates, so that the
        # error below can name their line.
        with table.open("r", encoding="utf-8-sig", errors="surrogateescape") as lines:
            for number, line in enumerate(lines, 1):
                # Only the newline: other white space may belong to the last field.
                line = line.removesuffix("\n")
                if not line:
                    continue
                location = f"{table}:{number}"
                try:
                    line.encode()
                except UnicodeEncodeError as error:
                    raise invalid(location, "be UTF-8", ascii(line)[:60]) from error
                yield location, line.split("\t")
