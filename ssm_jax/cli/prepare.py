r"""Makes a data set ready for the tasks that read it.

    python -m launch.prepare --dataset=glue/sst2 --manual_dir=downloads --data_dir=data
    python -m launch.prepare --dataset=pathfinder32 --data_dir=data
    python -m launch.prepare --dataset=wikitext103 --manual_dir=wikitext-103 \
        --data_dir=data

``--manual_dir`` holds files as their publisher distributes them; if one is missing, the
error says which and where to get it. Without ``--manual_dir`` the set is downloaded by
TFDS's own builder, which takes TensorFlow, the extra ``[prepare]`` of this package. The
pathfinder sets are drawn here. Training then takes the same ``--data_dir``; on the
texts ``wikitext103``, ``wikitext103_raw`` and ``pg19`` the folder of that name in it.

A set is written beside its place and moved there when it is whole. What was begun and
never ended is begun anew; of the pathfinder sets the parts that are whole stay.
"""

import importlib.util
from pathlib import Path

from absl import flags, logging
from tqdm import tqdm

from ssm_jax.config import nearest
from ssm_jax.tasks.images import prepare_cifar10, prepare_mnist
from ssm_jax.tasks.pathfinder.pathfinder import PATHFINDER, Size
from ssm_jax.tasks.pathfinder.prepare import write_pathfinder
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
DRAWN: dict[str, Size] = {"pathfinder32": 32, "pathfinder128": 128, "pathx": 128}


def prepare(
    dataset: str,
    data_dir: str | None = None,
    manual_dir: str | None = None,
    *,
    subset: bool = False,
) -> str:
    """Prepares a set, unless it is there already.

    Args:
      dataset: Which set, as ``--dataset`` names it.
      data_dir: Folder of all prepared sets. None means TFDS's own.
      manual_dir: Folder of the publisher's files. None: the set is downloaded.
      subset: Takes other numbers of examples than the published ones.

    Returns:
      The folder of the set.

    Raises:
      FileNotFoundError: A publisher's file is missing.
      ValueError: The set is unknown, a file is damaged or of another set, or what is
        there already is damaged.
      OSError: The set could not be downloaded or written.
    """
    if dataset in DRAWN:
        prepared = PATHFINDER[DRAWN[dataset]]
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
    with tqdm(desc=dataset, unit=" images", disable=None) as bar:

        def show(n: int, n_all: int) -> None:
            bar.total = n_all
            bar.update(n - bar.n)
            if bar.disable:
                logging.info("%s: %d of %d images", dataset, n, n_all)

        write_pathfinder(data_dir, size=DRAWN[dataset], progress=show)


def _download(
    raw: writing.RawSet | prepare_books.RawTexts, data_dir: str | None
) -> None:
    if not raw.in_tfds:
        cause = "TFDS does not download this set"
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
    """Prepares."""
    del argv
    values = flags.FLAGS
    prepare(values.dataset, values.data_dir, values.manual_dir, subset=values.subset)
