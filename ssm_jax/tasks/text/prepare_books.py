"""Converts published files of long texts to directories that `TextFolder` reads."""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ssm_jax.tasks.tfds import files, writing
from ssm_jax.tasks.tfds.reading import PreparedSet

_SPLITS = ("train", "validation", "test")


class TextSet(PreparedSet):
    """A set of documents: ``.txt`` files in one directory per split."""

    def is_there(self, data_dir: str | None) -> bool:
        """Returns whether the set exists; an existing set is always complete."""
        return os.path.isdir(self.path(data_dir))


@dataclass(frozen=True, kw_only=True)
class RawTexts(files.Published):
    """Texts as published, one file or directory per split.

    Attributes:
      prepared: The prepared set.
      documents: Yields the name and content of each document of a split, sorted by
        name.
      unit: The unit that is counted to check that a split is complete.
      count: Returns the number of units in a document.
      counts: Published number of units per split.
    """

    prepared: TextSet
    documents: Callable[[Path], Iterator[tuple[str, bytes]]]
    unit: str
    count: Callable[[bytes], int]
    counts: Mapping[str, int]
    in_tfds: bool = False


def write(
    raw: RawTexts, manual_dir: Path, data_dir: str | None, *, subset: bool = False
) -> str:
    """Prepares texts from their published files.

    Args:
      raw: The texts.
      manual_dir: Directory of the published files.
      data_dir: Directory of all sets; None means TFDS's default.
      subset: Whether counts other than the published ones are accepted.

    Returns:
      The directory of the texts, for `ssm_jax.tasks.TextFolder`.

    Raises:
      FileNotFoundError: A file is missing.
      ValueError: A file has other contents, a split is incomplete, or another process
        is preparing the same texts.
    """
    name, counts = raw.prepared.name, {} if subset else raw.counts
    sources = raw.find(manual_dir)
    with writing.stage(raw.prepared, data_dir) as staging:
        for split, source in zip(_SPLITS, sources, strict=True):
            folder = staging / raw.prepared.folder / split
            folder.mkdir(parents=True)
            n = 0
            what = f"{name} {split} documents"
            # One document at a time: PG-19 has 12 GB.
            for title, text in writing.with_progress(raw.documents(source), what, None):
                (folder / f"{title}.txt").write_bytes(text)
                n += raw.count(text)
            # An error discards the staging directory: no incomplete set remains.
            writing.check_count(name, split, n, counts, raw.unit)
    return raw.prepared.path(data_dir)


def _articles(source: Path) -> Iterator[tuple[str, bytes]]:
    """Splits a file of WikiText before each title, without dropping any line."""
    # Number of the article; -1 before the first title.
    article, n = [], -1
    after_blank = True
    with source.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            # After an empty line only: lines of formulas can look like titles.
            if after_blank and _is_title(line):
                if n >= 0:
                    # Padded with zeros: the order of the names is that of the articles.
                    yield f"{n:05}", b"".join(article)
                    article = []
                n += 1
            # Text before the first title means that this is another file.
            elif n < 0 and line.strip():
                rule = "be the title of an article, = TITLE ="
                raise files.invalid(f"{source}:{number}", rule, repr(line[:40])[1:])
            article.append(line)
            after_blank = not line.strip()
    if n >= 0:
        yield f"{n:05}", b"".join(article)


def _is_title(line: bytes) -> bool:
    """Returns whether a line has one ``=`` at each end; section titles have more."""
    words = line.split()
    if len(words) < 3 or b"=" in (words[1], words[-2]):
        return False
    return words[0] == words[-1] == b"="


def _books(source: Path) -> Iterator[tuple[str, bytes]]:
    # Sorted: the order of a file system differs between machines.
    for path in sorted(source.glob("*.txt")):
        text = path.read_bytes()
        if not text:
            raise files.invalid(path, "hold a book", "nothing")
        yield path.stem, text


def _wikitext(name: str, folder: str, ending: str) -> RawTexts:
    return RawTexts(
        prepared=TextSet(name, name, ()),
        publisher="the authors of https://arxiv.org/abs/1609.07843, as wikitext-103",
        wanted=tuple(
            (f"wiki.{split}.{ending}", f"{folder}/wiki.{split}.{ending}")
            for split in ("train", "valid", "test")
        ),
        documents=_articles,
        unit="lines",
        count=lambda text: text.count(b"\n"),
        counts={"train": 1_801_350, "validation": 3_760, "test": 4_358},
    )


WIKITEXT103 = _wikitext("wikitext103", "wikitext-103", "tokens")
"""Articles of Wikipedia as published: words separated by spaces, rare words
``<unk>``. A title is a line ``= TITLE =`` after an empty line, which excludes lines of
formulas. 60 articles are for validation and 60 for test, as published."""

WIKITEXT103_RAW = _wikitext("wikitext103_raw", "wikitext-103-raw", "raw")
"""The same articles with their rare words, for reading as bytes."""

PG19 = RawTexts(
    prepared=TextSet("pg19", "pg19", ()),
    publisher="https://github.com/google-deepmind/pg19",
    wanted=tuple((split, f"pg19/{split}") for split in _SPLITS),
    documents=_books,
    unit="books",
    count=lambda text: 1,
    counts={"train": 28_602, "validation": 50, "test": 100},
)
"""Books published before 1919, 12 GB, copied unchanged."""
