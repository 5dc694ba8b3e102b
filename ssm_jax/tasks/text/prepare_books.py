"""Long texts, from their publishers' files to folders that `TextFolder` reads."""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ssm_jax.tasks.tfds import files, writing
from ssm_jax.tasks.tfds.reading import PreparedSet

_SPLITS = ("train", "validation", "test")


class TextSet(PreparedSet):
    """A set of documents: ``.txt`` files in folders named as the splits."""

    def is_there(self, data_dir: str | None) -> bool:
        """Looks whether the set is there; if it is, it is whole."""
        return os.path.isdir(self.path(data_dir))


@dataclass(frozen=True, kw_only=True)
class RawTexts(files.Published):
    """Texts as their publisher distributes them, a file or folder for each split.

    Attributes:
      prepared: Where they lie when they are prepared.
      documents: Gives the documents of a split, each with a name, in the order of the
        names.
      unit: What is counted to know that a split is whole.
      count: Counts that in a document.
      counts: Published numbers of it, by split.
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
    """Prepares texts from their publisher's files.

    Args:
      raw: The texts.
      manual_dir: Folder of the files.
      data_dir: Folder of all sets; None means TFDS's own.
      subset: Takes other amounts of text than the published ones.

    Returns:
      The folder of the texts, for `ssm_jax.tasks.TextFolder`.

    Raises:
      FileNotFoundError: A file is missing.
      ValueError: A file holds something else, a split is not whole, or another process
        prepares the same texts.
    """
    name, counts = raw.prepared.name, {} if subset else raw.counts
    sources = raw.find(manual_dir)
    with writing.staged(raw.prepared, data_dir) as staging:
        for split, source in zip(_SPLITS, sources, strict=True):
            folder = staging / raw.prepared.folder / split
            folder.mkdir(parents=True)
            n = 0
            what = f"{name} {split} documents"
            for title, text in writing.with_progress(raw.documents(source), what, None):
                (folder / f"{title}.txt").write_bytes(text)
                n += raw.count(text)
            writing.check_count(name, split, n, counts, raw.unit)
    return raw.prepared.path(data_dir)


def _articles(source: Path) -> Iterator[tuple[str, bytes]]:
    """Cuts a file of WikiText before each title, so that all of it is in the parts."""
    article, n = [], -1
    after_blank = True
    with source.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if after_blank and _is_title(line):
                if n >= 0:
                    yield f"{n:05}", b"".join(article)
                    article = []
                n += 1
            elif n < 0 and line.strip():
                rule = "be the title of an article, = TITLE ="
                raise files.bad(f"{source}:{number}", rule, repr(line[:40])[1:])
            article.append(line)
            after_blank = not line.strip()
    if n >= 0:
        yield f"{n:05}", b"".join(article)


def _is_title(line: bytes) -> bool:
    """Whether a line has one sign of equality at either end; sections have more."""
    words = line.split()
    if len(words) < 3 or b"=" in (words[1], words[-2]):
        return False
    return words[0] == words[-1] == b"="


def _books(source: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(source.glob("*.txt")):
        text = path.read_bytes()
        if not text:
            raise files.bad(path, "hold a book", "nothing")
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
"""Articles of Wikipedia as they are published: words between spaces, rare ones
``<unk>``. A title is a line ``= TITLE =`` after an empty one, so that lines of formulas
are none: 60 articles for validation and 60 for tests, as published."""

WIKITEXT103_RAW = _wikitext("wikitext103_raw", "wikitext-103-raw", "raw")
"""The same articles with their rare words, as for bytes."""

PG19 = RawTexts(
    prepared=TextSet("pg19", "pg19", ()),
    publisher="https://github.com/google-deepmind/pg19",
    wanted=tuple((split, f"pg19/{split}") for split in _SPLITS),
    documents=_books,
    unit="books",
    count=lambda text: 1,
    counts={"train": 28_602, "validation": 50, "test": 100},
)
"""Books from before 1919, 12 gigabytes, copied."""
