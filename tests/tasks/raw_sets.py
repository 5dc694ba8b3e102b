"""Writes tiny data sets in the format of their publishers."""

import gzip
import io
import pickle
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np

WORDS = ("bad", "good", "naïve")
"""Digits of a sentence's index in base three, which make every sentence distinct."""


def sentence(i: int) -> str:
    """Returns sentence ``i``, with an unpaired quotation mark."""
    digits = [WORDS[i // 3**k % 3] for k in range(4)]
    return f"The \"film, as {' '.join(digits)} as it's long!"


def table(path: Path, *rows: tuple) -> None:
    """Writes a table of tab-separated fields."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ["\t".join(map(str, row)) + "\n" for row in rows]
    path.write_text("".join(lines), encoding="utf-8")


def idx(path: Path, values: np.ndarray) -> None:
    """Writes an array of bytes in the IDX format."""
    head = struct.pack(f">{1 + values.ndim}i", 0x0800 + values.ndim, *values.shape)
    path.write_bytes(gzip.compress(head + values.tobytes(), 1))


def mnist(folder: Path, n_train: int = 5, n_test: int = 3) -> dict[str, np.ndarray]:
    """Writes MNIST: images of noise; the label of image i is i % 10."""
    images = {}
    for split, prefix, n in (("train", "train", n_train), ("test", "t10k", n_test)):
        images[split] = np.random.default_rng(n).integers(0, 256, (n, 28, 28), np.uint8)
        idx(folder / f"{prefix}-images-idx3-ubyte.gz", images[split])
        labels = (np.arange(n) % 10).astype(np.uint8)
        idx(folder / f"{prefix}-labels-idx1-ubyte.gz", labels)
    return images


def imdb(folder: Path, n_train: int = 34, n_test: int = 11) -> Path:
    """Writes the archive of IMDB: review i is sentence i, positive if i is odd."""
    path = folder / "aclImdb_v1.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        put(archive, "aclImdb/README", b"Large Movie Review Dataset\n")
        put(archive, "aclImdb/train/unsup/0_0.txt", b"no label")
        put(archive, "aclImdb/train/urls_pos.txt", b"http://none")
        for i in range(n_train + n_test):
            split = "train" if i < n_train else "test"
            label = ("neg", "pos")[i % 2]
            content = f" {sentence(i)}\n".encode()
            put(archive, f"aclImdb/{split}/{label}/{i}_7.txt", content)
    return path


def put(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    """Adds a file to an archive."""
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


class _Python2Pickler(pickle._Pickler):
    """Pickles bytes as Python 2 pickles strings."""

    dispatch = pickle._Pickler.dispatch.copy()

    def _save_bytes(self, value):
        self.write(pickle.BINSTRING + struct.pack("<i", len(value)) + value)

    dispatch[bytes] = _save_bytes


def pickled(value: object) -> bytes:
    """Pickles a value as Python 2 does."""
    file = io.BytesIO()
    _Python2Pickler(file, 2).dump(value)
    # The module's name when the published files were written.
    return file.getvalue().replace(b"numpy._core.", b"numpy.core.")


def cifar10(folder: Path, n_train: int = 34, n_test: int = 11) -> dict[str, np.ndarray]:
    """Writes CIFAR-10: images of noise; the label of image i of a split is i % 10."""
    images = {}
    with tarfile.open(folder / "cifar-10-python.tar.gz", "w:gz") as archive:
        put(archive, "cifar-10-batches-py/batches.meta", pickled({b"num_vis": 3072}))
        for split, n, names in (
            ("test", n_test, ["test_batch"]),
            # Out of order, as in the published archive.
            ("train", n_train, [f"data_batch_{k}" for k in (3, 1, 2, 5, 4)]),
        ):
            rng = np.random.default_rng(n)
            images[split] = rng.integers(0, 256, (n, 3, 32, 32), np.uint8)
            for name, rows in zip(
                names, np.array_split(np.arange(n), len(names)), strict=True
            ):
                if split == "train":
                    number = int(name[-1]) - 1
                    rows = np.array_split(np.arange(n), len(names))[number]
                batch = {
                    b"batch_label": name.encode(),
                    b"labels": [int(row) % 10 for row in rows],
                    b"data": images[split][rows].reshape(len(rows), 3072),
                }
                put(archive, f"cifar-10-batches-py/{name}", pickled(batch))
    return images


def cola(folder: Path, n_train: int = 34, n_test: int = 11) -> None:
    """Writes the folder of CoLA: the label of sentence i is i % 2."""
    rows = [("gj04", i % 2, "*", sentence(i)) for i in range(n_train + n_test)]
    table(folder / "CoLA/train.tsv", *rows[:n_train])
    table(folder / "CoLA/dev.tsv", *rows[n_train:])
    table(folder / "CoLA/test.tsv", ("index", "sentence"), (0, "A test."), (1, "B."))


def mrpc(folder: Path, n_train: int = 34, n_test: int = 11) -> None:
    """Writes MRPC: pair i is sentence i and its end; validation pairs are 0, 4, ..."""
    columns = ("\ufeffQuality", "#1 ID", "#2 ID", "#1 String", "#2 String")
    rows = [
        (i % 2, i, i + 500, sentence(i), sentence(i).split("as ", 1)[1])
        for i in range(n_train + n_test)
    ]
    table(folder / "msr_paraphrase_train.txt", columns, *rows)
    table(folder / "msr_paraphrase_test.txt", columns, (0, 1, 2, "One.", "Two."))
    table(folder / "mrpc_dev_ids.tsv", *(row[1:3] for row in rows[: 4 * n_test : 4]))


def mnli(path: Path) -> None:
    """Writes the zip archive of MNLI: three train pairs, two per validation split."""
    columns = ("index", "promptID", "sentence1", "sentence2", "label1", "gold_label")
    classes = ("entailment", "neutral", "contradiction")
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("train", "dev_matched", "dev_mismatched"):
            rows = [columns] + [
                (i, 7, f"{name} premise {i}", f"hypothesis {i}", "neutral", classes[i])
                for i in range(3 if name == "train" else 2)
            ]
            lines = ["\t".join(map(str, row)) + "\r\n" for row in rows]
            archive.writestr(f"MNLI/{name}.tsv", "".join(lines))
        for name in ("test_matched", "test_mismatched"):
            lines = "index\tsentence1\tsentence2\n0\tA premise.\tNo.\n"
            archive.writestr(f"MNLI/{name}.tsv", lines)


def aan(folder: Path, n: int = 45) -> list[tuple[str, str, str, str, str]]:
    """Writes the tables of AAN: 24 train, 10 validation, the remaining test pairs."""
    rows = [
        (f"{i % 2}.0", f"W{i}", f"P{i}", sentence(i), sentence(i)[::-1])
        for i in range(n)
    ]
    for name, part in (
        ("train", rows[:24]),
        ("eval", rows[24:34]),
        ("test", rows[34:]),
    ):
        table(folder / f"new_aan_pairs.{name}.tsv", *part)
    return rows


def novels(folder: Path, n: int) -> list[str]:
    """Writes documents of a few words each; returns their texts in order."""
    rng = np.random.default_rng(0)
    words = np.array([*WORDS, *(f"w{i}" for i in range(17))])
    texts = [
        " ".join(words[rng.integers(0, 20, rng.integers(9, 15))]) for _ in range(n)
    ]
    folder.mkdir(exist_ok=True)
    for i, text in enumerate(texts):
        (folder / f"{i:02}.txt").write_text(text, encoding="utf-8")
    return texts


def wav(path: Path, samples: np.ndarray, *, rate: int = 16_000, width: int = 2) -> None:
    """Writes samples ``(n,)`` or ``(n, channels)`` in WAV format."""
    path.parent.mkdir(parents=True, exist_ok=True)
    channels = 1 if samples.ndim == 1 else samples.shape[1]
    data = samples.astype(f"<i{width}").tobytes()
    head = struct.pack(
        "<HHIIHH", 1, channels, rate, rate * channels * width, channels * width,
        8 * width,
    )  # fmt: skip
    body = b"WAVEfmt " + struct.pack("<I", len(head)) + head
    body += b"data" + struct.pack("<I", len(data)) + data
    path.write_bytes(b"RIFF" + struct.pack("<I", len(body)) + body)


def speech(folder: Path) -> dict[str, np.ndarray]:
    """Writes the folder of Speech Commands: 42 train, 17 validation, 11 test files.

    Returns:
      The 300 to 16,400 samples of each file, extreme values included, by its name.
    """
    words = (
        "backward bed bird cat dog down eight five follow forward four go happy house "
        "learn left marvin nine no off on one right seven sheila six stop three tree "
        "two up visual wow yes zero"
    ).split()
    rng, files = np.random.default_rng(0), {}
    for i, word in enumerate(words + words):
        length = (16_000, 15_999, 300, 16_400)[i % 4]
        samples = rng.integers(-(2**15), 2**15, length).astype(np.int16)
        samples[:2] = (-(2**15), 2**15 - 1)
        files[f"{word}/{i:08x}_nohash_{i // 35}.wav"] = samples
    for name, samples in files.items():
        wav(folder / name, samples)
    wav(folder / "_background_noise_/pink_noise.wav", rng.integers(0, 9, 50_000))
    (folder / "LICENSE").write_text("Creative Commons\n")
    names = sorted(files)
    for name, part in (("validation", names[1:68:4]), ("testing", names[2:44:4])):
        (folder / f"{name}_list.txt").write_text("".join(f"{n}\n" for n in part))
    return files


BEIJING = "PRSA_data_2010.1.1-2014.12.31.csv"


def beijing(folder: Path, n: int = 1200) -> None:
    """Writes ``n`` hours in the columns of UCI's Beijing PM2.5, with gaps in one."""
    rng = np.random.default_rng(0)
    lines = ["No,year,month,day,hour,pm2.5,DEWP,TEMP,PRES,cbwd,Iws,Is,Ir"]
    for i in range(n):
        dust = "NA" if i < 5 or i % 50 < 2 else int(rng.integers(1, 900))
        day = 1 + i // 24 % 28
        numbers = [round(x, 2) for x in rng.normal(0, 9, 3).tolist()]
        wind = ("NW", "cv", "SE", "NE")[rng.integers(4)]
        lines.append(
            f"{i + 1},2010,1,{day},{i % 24},{dust},"
            f"{numbers[0]},{numbers[1]},{numbers[2]},{wind},{i % 7},0,{i % 3}"
        )
    (folder / BEIJING).write_text("\n".join(lines) + "\n")


def arrays(path: Path, n: int = 60) -> None:
    """Writes ``n`` sequences of up to 20 vectors with a class at each step."""
    rng = np.random.default_rng(0)
    np.savez(
        path,
        inputs=rng.normal(size=(n, 20, 2)),
        targets=rng.integers(0, 20, (n, 20)),
        lengths=rng.integers(1, 21, n),
    )


def labelled_files(folder: Path) -> None:
    """Writes ``sounds`` and ``pictures``: noise, with splits of 21, 9 and 11 files."""
    from PIL import Image

    rng = np.random.default_rng(0)
    for split, n in (("train", 21), ("val", 9), ("test", 11)):
        for i in range(n):
            name = f"{split}/{'dog' if i % 3 else 'big cat'}/{i:02}"
            samples = rng.integers(-(2**15), 2**15, 80 + 5 * i)
            wav(folder / f"sounds/{name}.wav", samples, rate=11_025)
            path = folder / f"pictures/{name}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 256, (6, 9, 3), np.uint8)).save(path)


def long_table(path: Path) -> None:
    """Writes 60 examples of 5 to 9 steps, one row for each, in the order of steps."""
    rng = np.random.default_rng(0)
    rows = [
        f"{i},{rng.normal():.6f},{rng.normal():.6f},{'up' if i % 3 else 'down'}"
        for step in range(9)
        for i in range(60)
        if step < 5 + i % 5
    ]
    path.write_text("\n".join(["id,x,y,label", *rows]))
