"""Publishers' files: archives, and tables of one row a line; errors name the place."""

import contextlib
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_DAMAGED = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError)


@dataclass(frozen=True, kw_only=True)
class Published:
    """What a publisher distributes.

    Attributes:
      publisher: Where the files are published.
      wanted: The files; of each, the names that it may have, in the order in which they
        are looked for.
      in_tfds: Whether TFDS has a builder of its own that downloads them.
    """

    publisher: str
    wanted: tuple[tuple[str, ...], ...]
    in_tfds: bool = True

    def describe_wanted(self) -> str:
        """Says which files are wanted and where they are published."""
        names = ", ".join(" or ".join(names) for names in self.wanted)
        return f"{names} (from {self.publisher})"

    def find(self, manual_dir: Path) -> list[Path]:
        """Finds the files in a folder.

        Raises:
          FileNotFoundError: One of them is not there under any of its names.
        """
        found, missing = [], []
        for names in self.wanted:
            there = [
                manual_dir / name for name in names if (manual_dir / name).exists()
            ]
            found += there[:1]
            missing += [] if there else [names[0]]
        if missing:
            raise FileNotFoundError(
                f"`--manual_dir` must hold {self.describe_wanted()}, got {manual_dir} "
                f"without {', '.join(missing)}; put them there as they are distributed."
            )
        return found


def bad(place: object, rule: str, got: object) -> ValueError:
    """Makes the error for a file, a line or a record that is not what it should be."""
    return ValueError(
        f"{place} must {rule}, got {got}; get the file anew from its publisher."
    )


@contextlib.contextmanager
def report_damage(path: Path) -> Iterator[None]:
    """Turns what a damaged archive raises into an error that names it."""
    try:
        yield
    except _DAMAGED as error:
        raise bad(path, "be whole", str(error) or type(error).__name__) from error
    except OSError as error:  # gzip's, which does not know the name of its file
        if error.filename is None and error.errno is None:
            raise bad(path, "be whole", error) from error
        raise


def members(path: Path) -> Iterator[tuple[PurePosixPath, bytes]]:
    """Gives the files of a folder or of a tar archive, with their paths.

    The paths of a folder begin with its own name, as those of an archive of it do.
    """
    if path.is_dir():
        for file in sorted(path.rglob("*")):
            if file.is_file():
                inside = PurePosixPath(path.name, *file.relative_to(path).parts)
                yield inside, file.read_bytes()
        return
    with report_damage(path), tarfile.open(path, "r|*") as archive:
        for member in archive:
            if member.isfile():
                content = archive.extractfile(member)
                assert content is not None  # which it is for what is no file
                yield PurePosixPath(member.name), content.read()


def rows(path: Path, file: str | None = None) -> Iterator[tuple[str, list[str]]]:
    """Gives the rows of a table of UTF-8 text, split at its tabs.

    Quotation marks are characters as all others. Lines without any are passed over.

    Args:
      path: The table, or a folder or zip archive that holds it.
      file: Path of the table in the folder or archive.

    Returns:
      For each row its place, ``FILE:LINE``, and its fields.

    Raises:
      FileNotFoundError: The folder or archive does not hold the table.
      ValueError: The archive is damaged, or a line is no UTF-8.
    """
    table = path
    with report_damage(path):
        if file is not None:
            table = (zipfile.Path(path) if path.is_file() else path) / file
        if not table.exists():
            raise FileNotFoundError(f"{path} must hold {file}, got no such file in it.")
        with table.open("r", encoding="utf-8-sig", errors="surrogateescape") as lines:
            for number, line in enumerate(lines, 1):
                line = line.removesuffix("\n")
                if not line:
                    continue
                place = f"{table}:{number}"
                try:
                    line.encode()
                except UnicodeEncodeError as error:
                    raise bad(place, "be UTF-8", ascii(line)[:60]) from error
                yield place, line.split("\t")
