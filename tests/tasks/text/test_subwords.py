"""Subword tokenizers trained with the package ``tokenizers``."""

import json
import sys

import numpy as np
import pytest
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from ssm_jax import tasks
from ssm_jax.tasks.text import subwords
from tests.bad_inputs import refuses

TEXTS = [
    "Où est-il? \U0001f642 He hopped here,\n\nhe hoped there.",
    "Hope is hopeless \u2014 here and there.",
    "There he hopes, here she hopped!",
]
SEPARATOR = "<|endoftext|>"


def by_bytes(folder, size=290):
    """Pairs of bytes, and a separator, in the folder of the texts."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[SEPARATOR],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.enable_truncation(5)
    tokenizer.enable_padding(length=7)
    tokenizer.save(str(folder / "tokenizer.json"))
    return tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts")
    for name, text in zip("abc", TEXTS, strict=True):
        (path / f"{name}.txt").write_text(text)
    by_bytes(path)
    return path


def task(folder, vocabulary=290, **fields):
    return tasks.TextFolder(
        data_dir=str(folder),
        tokenizer="tokenizer.json",
        length=6,
        vocabulary=vocabulary,
        **fields,
    )


def test_text_is_encoded_by_the_file_with_separators(folder, monkeypatch):
    monkeypatch.setattr(subwords, "_AT_ONCE", 40)  # less than the first of the texts
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    separator = tokenizer.token_to_id(SEPARATOR)
    packed = task(folder, layout="packed")
    for split, written in zip(("validation", "test", "train"), TEXTS, strict=True):
        expected = [separator, *tokenizer.encode(written).ids, separator]
        text = packed.text(split)
        assert text.tolist() == expected and text.dtype == np.uint16
    batch = packed.batch("test", 0, 2, seed=0)
    np.testing.assert_array_equal(batch.inputs.ravel(), packed.text("test")[:12])
    np.testing.assert_array_equal(batch.reset, batch.inputs == separator)
    assert task(folder).text("test") is task(folder, vocabulary=400).text("test")


def test_bytes_of_a_character_are_spelled_one_by_one(folder):
    read = task(folder)
    tokens = read.encode(TEXTS[0])
    spelled = [read.decode(token) for token in tokens]
    assert b"".join(spelled) == b"\n\n" + TEXTS[0].encode()
    smile = "\U0001f642".encode()
    assert smile not in spelled and any(part and part in smile for part in spelled)
    texts = {subwords.load(folder / "tokenizer.json").decode(i) for i in range(290)}
    assert texts >= {bytes([byte]) for byte in range(256)}
    assert read.decode(300) == b""


def test_words_and_their_pieces_are_spelled_as_they_are_joined(tmp_path):
    vocabulary = {"[UNK]": 0, "hop": 1, "##ed": 2, "here": 3, ",": 4}
    tokenizer = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.save(str(tmp_path / "pieces.json"))
    pieces = subwords.load(tmp_path / "pieces.json")
    (tokens,) = pieces.encode(["Hopped, hoped here"])
    assert tokens.tolist() == [0, 4, 1, 2, 3] and tokens.dtype == np.int32
    (tokens,) = pieces.encode(["here, hoped"])
    assert b"".join(map(pieces.decode, tokens.tolist())) == b" here, hoped"


def test_bytes_of_a_fallback_are_bytes(tmp_path):
    vocabulary = {"<0xE2>": 0, "\u2581a": 1, "<unk>": 2}
    model = models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True)
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Metaspace()]
    )
    tokenizer.save(str(tmp_path / "fallback.json"))
    fallback = subwords.load(tmp_path / "fallback.json")
    assert [fallback.decode(i) for i in (0, 1)] == [b"\xe2", b" a"]


BAD = {
    "vocabulary": ({"vocabulary": 257}, "290", 257),
    "separator": ({"separator": "</s>"}, "<|endoftext|>", "'</s>'"),
}


@pytest.mark.parametrize("fields, rule, value", BAD.values(), ids=BAD)
def test_field_that_does_not_match_the_file_is_an_error(folder, fields, rule, value):
    (name,) = fields
    with refuses(name, value, rule=rule):
        task(folder, **fields).batch("test", 0, 1, seed=0)


def test_file_that_cannot_be_read_is_an_error(tmp_path, monkeypatch):
    path = tmp_path / "tokenizer.json"
    with pytest.raises(FileNotFoundError, match=str(path)):
        subwords.Subwords(path)
    path.write_text("{}")
    with pytest.raises(ValueError, match=str(path)):
        subwords.Subwords(path)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ValueError, match=f"{path}.*`pip install tokenizers`"):
        subwords.Subwords(path)


def changed(folder, **fields):
    """The tokenizer of a folder with some fields of its file replaced."""
    path = folder / "changed.json"
    whole = json.loads((folder / "tokenizer.json").read_text())
    model = whole["model"] | fields.pop("model", {})
    path.write_text(json.dumps(whole | {"model": model} | fields))
    return subwords.Subwords(path)


WORDS = {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "gone"}
EMPTY = {"type": "Replace", "pattern": {"String": ""}, "content": "x"}
FILES = {
    "no token": {"model": {"vocab": {}, "merges": []}, "added_tokens": []},
    "index of 33 bits": {"model": {"vocab": {"a": 2**32}, "merges": []}},
    "index of 32 bits": {"model": {"vocab": {"a": 2**32 - 1}, "merges": []}},
    "unknown word": {"model": WORDS, "pre_tokenizer": None},
    "panic": {"normalizer": EMPTY},
    "pattern": {"normalizer": {**EMPTY, "pattern": {"Regex": "((("}}},
}


@pytest.mark.parametrize("fields", FILES.values(), ids=FILES)
def test_file_that_the_package_cannot_use_is_refused(folder, fields):
    with refuses("tokenizer", "changed.json"):
        list(changed(folder, **dict(fields)).encode(["hello"]))


def test_large_index_takes_no_memory(folder):
    """The package would take 8 GB, and half a minute, to write such a file."""
    vocab = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    tokenizer = changed(folder, model={"vocab": vocab | {"zz": 2**31 - 2}})
    assert tokenizer.size == 2**31 - 1
    assert tokenizer.decode(2**31 - 2) == b"zz"
