"""Conversion of published long texts to the documents of TextFolder."""

import pytest

from ssm_jax import tasks
from ssm_jax.cli.prepare import TEXTS, prepare
from ssm_jax.tasks.text import documents
from tests.bad_inputs import refuses

ARTICLES = (
    " \n = Émile , a hill = \n \n It is <unk> high . \n \n = = Climb = = \n \n"
    " Steep . \n = 1 rad / s = k = \n \n",
    " = 1984 = \n \n = = = Deep = = = \n A year . \n \n",
    " = E = mc2 = \n \n So it is . \n \n",
)
ENDINGS = {"wikitext103": "tokens", "wikitext103_raw": "raw"}


def wikitext(folder, ending="tokens", articles=ARTICLES):
    """Writes the three files; the train split has all articles, the others the last."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, texts in (("train", articles), ("valid", articles[1:])):
        (folder / f"wiki.{split}.{ending}").write_text("".join(texts))
    (folder / f"wiki.test.{ending}").write_text(articles[-1])


def books(folder):
    """Writes the published tree; returns the text of each book."""
    texts = {
        split: {f"{number}": f"{split}, {number}\n" for number in (11, 5, 20)}
        for split in ("train", "validation", "test")
    }
    for split, contents in texts.items():
        (folder / split).mkdir(parents=True)
        for name, text in contents.items():
            (folder / split / f"{name}.txt").write_text(text)
    return texts


def read(folder):
    """Texts of the documents of each split, in the order of the task."""
    return {
        split: [file.read_bytes().decode() for file in files]
        for split, files in documents.files(folder).items()
    }


@pytest.mark.parametrize("name", ENDINGS)
@pytest.mark.parametrize("inside", ["", "as published"])
def test_each_article_of_wikitext_is_a_document(name, inside, tmp_path):
    ending = ENDINGS[name]
    unpacked = {"tokens": "wikitext-103", "raw": "wikitext-103-raw"}[ending]
    raw = tmp_path / "raw"
    wikitext(raw / unpacked if inside else raw, ending)
    folder = prepare(name, str(tmp_path), str(raw), subset=True)
    assert folder == str(tmp_path / name)
    train, *others = ARTICLES
    assert read(folder) == {
        "train": [train, *others],
        "validation": others,
        "test": others[-1:],
    }
    batch = tasks.TextFolder(data_dir=folder, length=8).batch("test", 0, 1, seed=0)
    assert bytes(batch.inputs[0, 1:].astype("uint8") - 1) == others[-1][:7].encode()


def test_each_book_is_a_document_and_a_set_that_is_there_stays(tmp_path):
    texts = books(tmp_path / "raw" / "pg19")
    folder = prepare("pg19", str(tmp_path), str(tmp_path / "raw"), subset=True)
    expected = {
        split: [text for _, text in sorted(contents.items())]
        for split, contents in texts.items()
    }
    assert read(folder) == expected
    (tmp_path / "raw" / "pg19" / "train" / "5.txt").write_text("another book")
    assert prepare("pg19", str(tmp_path), str(tmp_path / "raw")) == folder
    assert read(folder) == expected


def empty_book(raw):
    books(raw)
    (raw / "validation" / "5.txt").write_text("")


def missing_split(raw):
    wikitext(raw)
    (raw / "wiki.valid.tokens").unlink()


def untitled(raw):
    wikitext(raw, articles=(" \n <html> \n", *ARTICLES))


BAD = {
    "short": (wikitext, False, "1801350 .*train.* 19.*--subset"),
    "empty": (lambda raw: wikitext(raw, articles=("",)), True, "got 0"),
    "untitled": (untitled, True, "train.tokens:2 .*title.* ' <html> "),
    "missing": (missing_split, True, "wiki.valid.tokens"),
    "empty book": (empty_book, True, "validation/5.txt"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_file_is_named_and_nothing_is_left(case, tmp_path):
    write_raw, subset, message = BAD[case]
    raw, sets = tmp_path / "raw", tmp_path / "sets"
    write_raw(raw)
    name = "pg19" if (raw / "train").exists() else "wikitext103"
    with pytest.raises((ValueError, FileNotFoundError), match=message) as error:
        prepare(name, str(sets), str(raw), subset=subset)
    assert "\n" not in str(error.value)
    assert not (sets.exists() and list(sets.iterdir()))


def test_texts_are_not_downloaded(tmp_path):
    for name in TEXTS:
        with refuses("--manual_dir"):
            prepare(name, str(tmp_path))
