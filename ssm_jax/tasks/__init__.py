"""Tasks: sources of batches of sequences and targets, as numpy arrays.

`base` holds the `Task` protocol, `Batch` and `TaskSpec`; `generated` holds the storage
that all generated finite sets share. Tasks are grouped by subject: `arrays`, `folders`,
`images`, `listops`, `pathfinder`, `series`, `speech`, `synthetic` and `text`; `tfds`
reads and writes prepared data sets. A new task is a file in the package of its subject,
is exported here, and gets a row in ``tests/tasks/test_contract.py``. A module
``prepare_NAME`` next to a task converts the publisher's files to the prepared set that
the task reads.

Data sets are opened at the first batch; importing this package loads none of them.
"""

from ssm_jax.tasks.arrays.dataset import GrainTask
from ssm_jax.tasks.arrays.file import ArrayTask
from ssm_jax.tasks.arrays.long_table import LongTable
from ssm_jax.tasks.base import Batch, Split, Task, TaskSpec, n_batches
from ssm_jax.tasks.folders.audio import AudioFolder
from ssm_jax.tasks.folders.images import ImageFolder
from ssm_jax.tasks.images.digits import Digits
from ssm_jax.tasks.images.pixels import PixelCifar10, PixelMnist
from ssm_jax.tasks.listops.listops import ListOps
from ssm_jax.tasks.listops.subtrees import ListOpsSubTrees
from ssm_jax.tasks.pathfinder.pathfinder import Pathfinder
from ssm_jax.tasks.pathfinder.segmentation import PathfinderSegmentation
from ssm_jax.tasks.series.table_format import TableFormat
from ssm_jax.tasks.series.windows import SeriesTask
from ssm_jax.tasks.speech.commands import SpeechCommands
from ssm_jax.tasks.synthetic.associative_recall import AssociativeRecall
from ssm_jax.tasks.synthetic.context_shift import ContextShift
from ssm_jax.tasks.synthetic.copying import Copying
from ssm_jax.tasks.synthetic.cummax import CumMax
from ssm_jax.tasks.synthetic.cumsum import CumSum
from ssm_jax.tasks.synthetic.group_words import GroupWords
from ssm_jax.tasks.synthetic.induction_heads import InductionHeads
from ssm_jax.tasks.synthetic.mips import MIPS
from ssm_jax.tasks.synthetic.mixture import Mixture
from ssm_jax.tasks.synthetic.needle import NeedleInHaystack
from ssm_jax.tasks.synthetic.reverse import Reverse
from ssm_jax.tasks.synthetic.select import Select, SelectFixed
from ssm_jax.tasks.synthetic.selective_copying import SelectiveCopying
from ssm_jax.tasks.synthetic.shift import Shift
from ssm_jax.tasks.synthetic.solve import Solve, SolveFixed
from ssm_jax.tasks.synthetic.sort import Sort
from ssm_jax.tasks.synthetic.state_tracking import ModularSums, Parity
from ssm_jax.tasks.text.folder import TextFolder
from ssm_jax.tasks.text.glue import Glue
from ssm_jax.tasks.text.imdb import ImdbBytes, ImdbWords
from ssm_jax.tasks.text.retrieval import Retrieval
from ssm_jax.tasks.tfds.task import TFDSTask

__all__ = [
    "ArrayTask",
    "AssociativeRecall",
    "AudioFolder",
    "Batch",
    "ContextShift",
    "Copying",
    "CumMax",
    "CumSum",
    "Digits",
    "Glue",
    "GrainTask",
    "GroupWords",
    "ImageFolder",
    "ImdbBytes",
    "ImdbWords",
    "InductionHeads",
    "ListOps",
    "ListOpsSubTrees",
    "LongTable",
    "MIPS",
    "Mixture",
    "ModularSums",
    "NeedleInHaystack",
    "Parity",
    "Pathfinder",
    "PathfinderSegmentation",
    "PixelCifar10",
    "PixelMnist",
    "Retrieval",
    "Reverse",
    "Select",
    "SelectFixed",
    "SelectiveCopying",
    "SeriesTask",
    "Shift",
    "Solve",
    "SolveFixed",
    "Sort",
    "SpeechCommands",
    "Split",
    "TFDSTask",
    "TableFormat",
    "Task",
    "TaskSpec",
    "TextFolder",
    "n_batches",
]
