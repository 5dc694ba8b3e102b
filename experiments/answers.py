"""Fills the answers of the tables with numbers of the records.

The answer of a table, in ``experiments/PAPER/answers.py``, has fields such as
``{mean fru/imdb:model=sru}``: what is shown, and of which experiments. The words
between them are checked by ``tests/experiments/test_answers.py``.
"""

import re
import textwrap
from collections.abc import Callable, Mapping, Sequence

from experiments import extension
from experiments.comparisons import Comparison
from ssm_jax.cli.summary import Row, Summary, number, summaries

_FIELD = re.compile(r"\{(\w+) ([^{}]+)\}")


class Records:
    """The records of a paper, by the fields of an answer."""

    def __init__(self, rows: Sequence[Row]) -> None:
        """Summarizes the records.

        Args:
          rows: Records of the paper.
        """
        self._of_name = {each.name: each for each in summaries(rows)}
        self._fields: Mapping[str, Callable[..., str]] = {
            "mean": lambda name: number(self.of(name).mean),
            "spread": self._spread,
            "seeds": self._seeds,
            "less": lambda *names: _signed(self.compared(*names)),
            "errors": lambda *names: number(self.compared(*names).in_errors, ".1f"),
            "missed": lambda *names: number(self.missed(*names), ".2g"),
            "change": lambda name: _nats(self.change(name), "+.4f"),
            "extends": lambda name: ", ".join(extension.verdicts(self._of(name))),
            "gain": lambda *names: _nats(self.gain(*names)),
            "equal": lambda *names: _nats(self.equal(*names)),
        }

    def filled(self, answer: str) -> str:
        """Returns an answer as Markdown, its fields replaced.

        Args:
          answer: The answer.

        Returns:
          The paragraph; empty if an experiment of the answer has no record, without
          which the words of the answer may be wrong.
        """
        names = {name for found in _FIELD.finditer(answer) for name in found[2].split()}
        if not answer or names - self._of_name.keys():
            return ""

        def shown(found: re.Match[str]) -> str:
            return self._fields[found[1]](*found[2].split())

        return textwrap.fill(_FIELD.sub(shown, answer), 88) + "\n"

    def of(self, name: str) -> Summary:
        """The results of an experiment."""
        return self._of_name[name]

    def compared(self, name: str, reference: str) -> Comparison:
        """The results of an experiment less those of another."""
        return Comparison(self.of(name), self.of(reference))

    def missed(self, name: str, reference: str) -> float:
        """The variance that an experiment misses, divided by that of another."""
        return (1 - self.of(name).mean) / (1 - self.of(reference).mean)

    def change(self, name: str) -> extension.Change:
        """The change of the loss from windows of the trained length to the longest."""
        return extension.of_length(self._of(name))

    def gain(self, carried: str, zero: str) -> extension.Change:
        """The loss from zero states at the longest windows, less that carried."""
        return extension.of_states(self._of(carried), self._of(zero))

    def equal(self, carried: str, zero: str) -> extension.Change:
        """The loss after training with carried states less that after zero states.

        Both are of windows of the trained length, from zero states.
        """
        return extension.at_trained_length(self._of(carried), self._of(zero))

    def _of(self, name: str) -> Sequence[Row]:
        return self.of(name).rows

    def _seeds(self, *names: str) -> str:
        (n,) = {len(self.of(name).rows) for name in names}
        return "one seed" if n == 1 else f"{n} seeds"

    def _spread(self, *names: str) -> str:
        means = [self.of(name).mean for name in names]
        return f"{min(means):.4f} to {max(means):.4f}"


def _signed(compared: Comparison) -> str:
    return f"{compared.difference:+.4f} ± {number(compared.error)}"


def _nats(found: extension.Change, digits: str = ".4f") -> str:
    return f"{number(found.mean, digits)} ± {number(found.error)}"
