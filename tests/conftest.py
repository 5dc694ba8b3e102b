"""Tiers of the tests, and JAX as the tests want it: programs compiled fast and once.

There are three tiers:

* fast (no option): tests without a mark, on one CPU device and without subprocesses.
  Every row of the table of recurrences once: length 17, sequential with its gradient.
  Of other tests cheap rows; doctests.
* ``--full``: adds the tests marked ``full``, on eight CPU devices: each method, several
  lengths, gradients and dtypes, several devices and processes, the programs. Shape
  annotations are checked at every call.
* ``--nightly``: adds the tests marked ``nightly``: all rows by all methods, 131,072
  steps, kill trials, 10,000 generated tokens, the cells of the documentation.

A test that needs several devices or starts a process is marked ``full``. Tests of
other tiers are deselected, not skipped.

Nothing of ssm_jax is imported at the head of this file: the hook that checks the shape
annotations is installed after it is read.
"""

import gc
import io
import os
import shutil
import tempfile
from collections.abc import Callable

import jax
import jaxtyping
import numpy as np
import pytest
from PIL import Image

# The programs of tests are run once: with these they are compiled in half the time.
_QUICK = [
    "--xla_backend_optimization_level=0",
    "--xla_llvm_disable_expensive_passes=true",
    "--xla_cpu_parallel_codegen_split_count=1",
]
if jax.__version_info__ < (0, 11):  # A flag that XLA does not know ends the process.
    _QUICK += ["--xla_cpu_use_fusion_emitters=false"]
os.environ.setdefault("XLA_FLAGS", " ".join(_QUICK))

# One cache for all workers of pytest-xdist, which inherit the variable set here.
_IS_WORKER = "PYTEST_XDIST_WORKER" in os.environ
_COMPILED = (
    os.environ["JAX_COMPILATION_CACHE_DIR"]
    if _IS_WORKER
    else tempfile.mkdtemp(prefix="compiled-")
)
for _name, _value in (
    ("jax_compilation_cache_dir", _COMPILED),
    ("jax_persistent_cache_min_compile_time_secs", 0.0),
):
    jax.config.update(_name, _value)
    os.environ[_name.upper()] = str(_value)  # for the processes that tests start

N_TRAIN, N_TEST = 34, 11
"""Images of the prepared mnist that stands in for the real one."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options of the tiers."""
    group = parser.getgroup("tiers")
    group.addoption("--full", action="store_true", help="run the tests marked full too")
    group.addoption("--nightly", action="store_true", help="run all tests")


def pytest_configure(config: pytest.Config) -> None:
    """Sets the number of devices, and whether annotations are checked."""
    if config.getoption("--full") or config.getoption("--nightly"):
        jax.config.update("jax_num_cpu_devices", 8)  # before JAX makes them
        # It compiles every module of ssm_jax anew, which takes some seconds.
        # The hook imports the package of a name alone, and this the module.
        from tests import annotations

        jaxtyping.install_import_hook("ssm_jax", f"{annotations.__name__}.check")
    else:
        jax.config.update("jax_num_cpu_devices", 1)


def pytest_collection_modifyitems(config: pytest.Config, items: list) -> None:
    """Deselects the tests of other tiers."""
    if config.getoption("--nightly"):
        return
    other_tiers = {"nightly"} if config.getoption("--full") else {"nightly", "full"}
    selected, deselected = [], []
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        (deselected if marks & other_tiers else selected).append(item)
    items[:] = selected
    config.hook.pytest_deselected(items=deselected)


def pytest_collection_finish() -> None:
    """Collects garbage seldom: tracing makes many objects, of which few are garbage."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 50, 1000)


def pytest_unconfigure() -> None:
    """Throws the compiled programs away."""
    if not _IS_WORKER:
        shutil.rmtree(_COMPILED, ignore_errors=True)


@pytest.fixture(scope="module", autouse=True)
def _clear_programs():
    """Programs of a file of tests go with it: together they take many gigabytes."""
    yield
    jax.clear_caches()


@pytest.fixture
def key():
    return jax.random.key(0)


@pytest.fixture
def unchecked(monkeypatch) -> None:
    """Lets an argument of the wrong type through to the error that users see."""
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)


def encode_image(i: int) -> io.BytesIO:
    """Gives image ``i`` as PNG: its own noise, and its number in the first pixel."""
    pixels = np.random.default_rng(i).integers(0, 256, (28, 28), np.uint8)
    pixels[0, 0] = i
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    file.seek(0)
    return file


@pytest.fixture
def png() -> Callable[[int], io.BytesIO]:
    """What `mnist_dir` holds, by the number of the image."""
    return encode_image


@pytest.fixture(scope="session")
def mnist_dir(tmp_path_factory) -> str:
    """A folder with mnist 3.0.1: 34 and 11 images, the label of image i is i % 10."""
    import tensorflow_datasets as tfds

    class Mnist(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        VERSION = tfds.core.Version("3.0.1")
        url_infos = None  # Nothing is downloaded, there are no checksums to look for.

        def _info(self):
            image = tfds.features.Image(shape=(28, 28, 1))
            label = tfds.features.ClassLabel(num_classes=10)
            features = tfds.features.FeaturesDict({"image": image, "label": label})
            return tfds.core.DatasetInfo(builder=self, features=features)

        def _split_generators(self, dl_manager):
            return {
                "train": self._generate_examples(range(N_TRAIN)),
                "test": self._generate_examples(range(N_TRAIN, N_TRAIN + N_TEST)),
            }

        def _generate_examples(self, numbers):
            for i in numbers:
                yield i, {"image": encode_image(i), "label": i % 10}

    folder = str(tmp_path_factory.mktemp("tfds"))
    Mnist(data_dir=folder, file_format="array_record").download_and_prepare()
    return folder


@pytest.fixture(scope="session")
def sets_dir(mnist_dir, tmp_path_factory) -> str:
    """A folder with tiny sets: the mnist of `mnist_dir`, the others from raw files.

    In its folder ``novels`` there is text, and in ``speech`` there are recordings.
    """
    from ssm_jax.tasks.images import prepare_cifar10
    from ssm_jax.tasks.text import prepare_aan, prepare_glue, prepare_imdb
    from ssm_jax.tasks.tfds import writing
    from tests.tasks import raw_sets

    raw, data_dir = (tmp_path_factory.mktemp(name) for name in ("raw", "sets"))
    shutil.copytree(mnist_dir, data_dir, dirs_exist_ok=True)
    for write_raw in (raw_sets.cifar10, raw_sets.imdb, raw_sets.cola, raw_sets.mrpc):
        write_raw(raw)
    raw_sets.aan(raw)
    for raw_set in (
        prepare_cifar10.CIFAR10,
        prepare_imdb.IMDB,
        prepare_glue.COLA,
        prepare_glue.MRPC,
        prepare_aan.AAN,
    ):
        writing.write(raw_set, raw, str(data_dir), subset=True)
    raw_sets.novels(data_dir / "novels", 29)
    raw_sets.speech(data_dir / "speech")
    raw_sets.beijing(data_dir)
    raw_sets.arrays(data_dir / "arrays.npz")
    raw_sets.labelled_files(data_dir)
    raw_sets.long_table(data_dir / "long.csv")
    return str(data_dir)
