r"""Prepares a data set for the tasks that read it.

    ssm-jax prepare --dataset=glue/sst2 --manual_dir=downloads --data_dir=data
    ssm-jax prepare --dataset=pathfinder32 --data_dir=data
    ssm-jax prepare --dataset=wikitext103 --manual_dir=wikitext-103 \
        --data_dir=data

``--manual_dir`` holds files as their publisher distributes them; if one is missing, the
error says which and where to get it. Without ``--manual_dir`` the set is downloaded by
the builder of TFDS, which requires TensorFlow, the extra ``[prepare]`` of this package.
The pathfinder sets are generated. Training takes the same ``--data_dir``, or for the
texts ``wikitext103``, ``wikitext103_raw`` and ``pg19`` the directory of that name in
it.

A set is written to a temporary directory and moved into place when it is complete. An
interrupted preparation starts again; complete parts of a pathfinder set are kept.
"""

import importlib.util
from pathlib import Path

from absl import flags, logging
from tqdm import tqdm

from ssm_jax.config import nearest
from ssm_jax.tasks.images import prepare_cifar10, prepare_mnist
from ssm_jax.tasks.pathfinder.examples import prepared_set
from ssm_jax.tasks.pathfinder.prepare import write_images
from ssm_jax.tasks.pathfinder.settings import PATHFINDER, SEGMENTATION
from ssm_jax.tasks.text import prepare_aan, prepare_books, prepare_glue, prepare_imdb
from ssm_jax.tasks.tfds import writing

RAW = {
    raw.prepared.name: raw
    for raw in (
        prepare_mnist.MNIST,
        prepare_cifar10.CIFAR10,
        prepare_imdb.IMDB,
        prepare_aan.AAN,
        prepare_glue.COLA,
        prepare_glue.SST2,
        prepare_glue.MRPC,
        prepare_glue.QQP,
        prepare_glue.MNLI,
        prepare_glue.QNLI,
    )
}
TEXTS = {
    raw.prepared.name: raw
    for raw in (
        prepare_books.WIKITEXT103,
        prepare_books.WIKITEXT103_RAW,
        prepare_books.PG19,
    )
}
PUBLISHED = RAW | TEXTS
DRAWN = {
    setting.name: setting for setting in (*PATHFINDER.values(), *SEGMENTATION.values())
} | {"pathx": PATHFINDER[128]}


def prepare(
    dataset: str,
    data_dir: str | None = None,
    manual_dir: str | None = None,
    *,
    subset: bool = False,
) -> str:
    """Prepares a data set, unless it is prepared already.

    Args:
      dataset: Name of the set, as in ``--dataset``.
      data_dir: Directory of all prepared sets. None means the default of TFDS.
      manual_dir: Directory of the publisher's files. None means that the set is
        downloaded.
      subset: Whether to accept other numbers of examples than the published ones.

    Returns:
      The directory of the set.

    Raises:
      FileNotFoundError: A file of the publisher is missing.
      ValueError: The set is unknown, a file is damaged or belongs to another set, or
        the existing prepared set is damaged.
      OSError: The set could not be downloaded or written.
    """
    if dataset in DRAWN:
        prepared = prepared_set(DRAWN[dataset])
    elif dataset in PUBLISHED:
        prepared = PUBLISHED[dataset].prepared
    else:
        hint = nearest(dataset, [*PUBLISHED, *DRAWN])
        raise ValueError(f"`--dataset` must be a set known here, got {dataset}; {hint}")
    folder = prepared.path(data_dir)
    if prepared.is_there(data_dir):
        logging.info("%s is prepared already, in %s", dataset, folder)
        return folder
    if dataset in DRAWN:
        _draw(dataset, folder.removesuffix(prepared.folder))
    elif manual_dir is not None:
        files = Path(manual_dir).expanduser()
        if dataset in TEXTS:
            prepare_books.write(TEXTS[dataset], files, data_dir, subset=subset)
        else:
            writing.write(RAW[dataset], files, data_dir, subset=subset)
    else:
        _download(PUBLISHED[dataset], data_dir)
    logging.info("%s is prepared in %s", dataset, folder)
    return folder


def _draw(dataset: str, data_dir: str) -> None:
    # `disable=None` hides the bar where stderr is no terminal; `show` logs instead.
    with tqdm(desc=dataset, unit=" images", disable=None) as bar:

        def show(n: int, n_all: int) -> None:
            bar.total = n_all
            # `update` takes a difference, and `n` counts all images so far.
            bar.update(n - bar.n)
            if bar.disable:
                logging.info("%s: %d of %d images", dataset, n, n_all)

        write_images(data_dir, DRAWN[dataset], progress=show)


def _download(
    raw: writing.RawSet | prepare_books.RawTexts, data_dir: str | None
) -> None:
    if not raw.in_tfds:
        cause = "TFDS does not download this set"
    # Looked up without an import, which takes seconds and may fail inside TensorFlow.
    elif importlib.util.find_spec("tensorflow") is None:
        cause = "TensorFlow, the extra [prepare] of this package, would download it"
    else:
        writing.download(raw.prepared, data_dir)
        return
    raise ValueError(
        f"`--manual_dir` must be given for {raw.prepared.name}, as a folder with "
        f"{raw.describe_wanted()}, got None; {cause}."
    )


def define_flags() -> None:
    """Defines the flags of this program."""
    flags.DEFINE_string("dataset", None, "Name of the data set.", required=True)
    flags.DEFINE_string(
        "data_dir", None, "Directory of prepared data sets (default: TFDS's own)."
    )
    flags.DEFINE_string("manual_dir", None, "Directory of the publisher's files.")
    flags.DEFINE_bool(
        "subset", False, "Accept fewer examples or less text than published."
    )


def main(argv):
    """Prepares the data set of ``--dataset``."""
    del argv
    values = flags.FLAGS
    prepare(values.dataset, values.data_dir, values.manual_dir, subset=values.subset)
