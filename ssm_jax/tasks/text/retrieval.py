"""Retrieval: classification of pairs of papers, read byte by byte."""

import dataclasses
import functools
from pathlib import Path

import numpy as np
from typing_extensions import override

from ssm_jax.tasks import base, order
from ssm_jax.tasks.text import tokens
from ssm_jax.tasks.tfds import reading

AAN = reading.PreparedSet("aan", "aan/1.0.0", ("label", "text1", "text2"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Retrieval(order.FiniteTask):
    """Classification: whether two papers are related by a citation, byte by byte.

    The Retrieval task of the Long Range Arena. What the task asks of a model: to
    compress the content of thousands of bytes into one vector, for each paper
    independently of the other.

    Attributes:
      data_dir: Directory that holds ``aan/1.0.0``, written by ``python -m
        launch.prepare --dataset=aan`` (array_record). None means TFDS's default
        directory: the environment variable ``TFDS_DATA_DIR``, else
        ``~/tensorflow_datasets``.
      length: Number of bytes of a paper that are read; longer papers are truncated.

    Batch:
      inputs: int32, ``(b, 2, length)``: each byte plus 1, then padding, 0; a vocabulary
        of 257.
      targets: int32, ``(b,)``: 1 if the papers are related, else 0.
      loss_mask: bool, ``(b,)``, false in the rows that pad the last batch.
      mask: bool, ``(b, 2, length)``, false on padding.

    Splits: 147,086 train, 18,090 validation and 17,437 test pairs of papers of the ACL
    Anthology, disjoint as published (the published ``eval`` is ``validation``), in the
    order of the files. The pairs of a batch are read from disk per batch, without
    TensorFlow; the 1.1 GB are never loaded as a whole. The publishers state no licence.
    The tests use a few artificial pairs instead.

    Raises:
      FileNotFoundError: At the first batch or count, if the set does not exist.
      ValueError: ``length`` is less than 3; at the first batch or count, if the set is
        damaged or not in array_record format.

    Example:
      >>> task = Retrieval()
      >>> task.spec.length, task.spec.pair
      (4000, True)

    References:
      Radev et al., `The ACL Anthology Network Corpus
      <https://aclanthology.org/W09-3607>`_, 2009; Tay et al., `Long Range Arena
      <https://arxiv.org/abs/2011.04006>`_, 2020, section 2.2.3
    """

    data_dir: str | None = None
    length: int = 4000

    def __post_init__(self) -> None:
        tokens.check_length(self.length, 4000)

    @property
    def spec(self) -> base.TaskSpec:
        """Pairs of rows of bytes, one of two classes per pair."""
        return tokens.token_spec(
            length=self.length, vocabulary=tokens.N_BYTES, n_classes=2, pair=True
        )

    def data_files(self) -> dict[str, Path]:
        """Returns the files of the prepared set by name."""
        return AAN.data_files(self.data_dir)

    @override
    def n_examples(self, split: base.Split) -> int:
        base.check_split(split)
        return len(_open(self.data_dir, split))

    @override
    def select(
        self, split: base.Split, indices: np.ndarray, loss_mask: np.ndarray
    ) -> base.Batch:
        # From disk per batch: papers are long, and a batch has few of them.
        records = _open(self.data_dir, split).read(indices.tolist())
        # Both papers of a pair in succession, to be separated by the reshape below.
        texts = [record.text(name) for record in records for name in ("text1", "text2")]
        # Truncated before the conversion: most bytes of a long paper are not used.
        inputs, mask = tokens.pad(
            [tokens.from_bytes(text[: self.length]) for text in texts], self.length
        )
        shape = (len(indices), 2, self.length)
        labels = np.array([record.integer("label") for record in records], np.int32)
        return base.Batch(inputs.reshape(shape), labels, loss_mask, mask.reshape(shape))


# One open file per split and process.
@functools.cache
def _open(data_dir: str | None, split: str) -> reading.Records:
    return AAN.open(data_dir, split)
