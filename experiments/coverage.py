"""Tables and figures of the papers, and which experiments answer them.

Each paper has its list in ``experiments/PAPER/tables.py``; `experiments.papers` has all
of them, and `experiments.overview` writes them as the table that begins a page.
"""

import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

from experiments.records import config_named
from ssm_jax.cli.summary import Summary


class Table(NamedTuple):
    """A table or figure of a paper.

    Attributes:
      name: Its name in the paper, as ``"Table 1"`` or ``"Figures 3 and 4"``, or
        ``"Section 3.1"`` for a picture of ours.
      subject: What it is about; part of the title of its section.
      question: The question that it answers.
      cells: Experiments at the published setting, as in ``--config`` without
        ``experiments/`` and ``.py``.
      reduced: Regular expressions of experiments of other sizes with the same question.
      references: Regular expressions of those of them that others are compared with.
      programs: Commands that draw or measure it without a published or reduced run.
      measured: Title of the section with the record of its programs; empty if there is
        no record.
      picture: What its first program draws, in ``experiments/results``; empty if it is
        not drawn on the page.
      reason: Why there is no number at a published setting; empty if there are all.
      note: What a reader of the results must know; shown below them.
      answer: What the results say to the question, see `experiments.answers`.
    """

    name: str
    subject: str
    question: str
    cells: tuple[str, ...] = ()
    reduced: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    measured: str = ""
    picture: str = ""
    reason: str = ""
    note: str = ""
    answer: str = ""

    @property
    def title(self) -> str:
        """The title of its section."""
        return f"{self.name}: {self.subject}"

    def published(self, found: Sequence[Summary]) -> list[Summary]:
        """The results at the published setting."""
        return [each for each in found if each.name in self.cells]

    def smaller(self, found: Sequence[Summary]) -> list[Summary]:
        """The results of other sizes."""
        return [each for each in found if _matches(self.reduced, each.name)]

    def is_reference(self, summary: Summary) -> bool:
        """Whether others are compared with a result."""
        return _matches(self.references, summary.name)


class Paper(NamedTuple):
    """A paper and its tables.

    Attributes:
      title: Authors, year and title.
      url: URL of the paper.
      tables: All of its tables and figures.
    """

    title: str
    url: str
    tables: tuple[Table, ...]


def cells(experiment: str, **choices: tuple[str, ...]) -> tuple[str, ...]:
    """Returns all combinations of choices as names of experiments.

    Args:
      experiment: The experiment, ``PAPER/TASK``.
      **choices: Values by the name of the choice; "" leaves a name out.

    Example:
      >>> cells("fru/imdb", model=("fru", "sru"), size=("", "small"))[:2]
      ('fru/imdb:model=fru', 'fru/imdb:model=fru,size=small')
    """
    named = [
        [f"{name}={value}" if value else "" for value in values]
        for name, values in choices.items()
    ]
    variants = (",".join(filter(None, each)) for each in itertools.product(*named))
    return tuple(f"{experiment}:{each}".rstrip(":") for each in variants)


def command(name: str) -> str:
    """Returns the command that trains an experiment.

    Args:
      name: The experiment and its variant, ``PAPER/TASK:variant``.
    """
    experiment, colon, variant = name.partition(":")
    task = config_named(name).task
    # Images of Pathfinder are drawn in training if there is no directory of them.
    drawn = "data_dir" not in task or "Pathfinder" in task.cls
    data = "" if drawn else " --data_dir=DATA"
    config = f"experiments/{experiment}.py{colon}{variant}"
    return f"python -m launch.train --config={config} --workdir=RUN{data}"


def _matches(patterns, name):
    return any(re.fullmatch(pattern, name) for pattern in patterns)
