"""SpeechCommands: which of 35 words a recording of one second contains."""

import dataclasses
from pathlib import Path
from typing import Literal

import numpy as np
from typing_extensions import override

from ssm_jax.fields import check_fields
from ssm_jax.tasks import base, order
from ssm_jax.tasks.speech import recordings


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpeechCommands(order.FiniteTask):
    """Classification: which of 35 words a recording contains, sample by sample.

    What the task asks of a model: to analyse a waveform at the scale of milliseconds
    and to accumulate evidence over a second, 16,000 steps. Evaluated at
    ``sample_rate=8_000`` without training at this rate, it asks whether the model
    represents a function of continuous time.

    Attributes:
      data_dir: Folder into which the published archive of version 0.02 was extracted:
        a folder of ``.wav`` files for each word, ``validation_list.txt`` and
        ``testing_list.txt``.
      sample_rate: Number of samples per second. 8,000: every second sample of the same
        recordings, without a low-pass filter.

    Batch:
      inputs: float32, ``(b, sample_rate, 1)``: samples in [-1, 1), truncated to one
        second. Shorter recordings are followed by zeros. They are part of the signal,
        silence, and are not masked, as in the code of S4.
      targets: int32, ``(b,)``: the word, in alphabetical order.
      loss_mask: bool, ``(b,)``, false in the rows that pad the last batch.

    Splits: 84,843 train, 9,981 validation and 11,005 test recordings. The published
    lists name those for validation and test; they have no speaker in common with train.
    ``_background_noise_`` is not a word and not read. The files are listed once per
    process and read per batch. Licence CC BY 4.0. The tests use a few recordings of
    noise instead.

    Raises:
      FileNotFoundError: At the first batch or count, if the folder, the folder of a
        word or a list does not exist.
      ValueError: ``sample_rate`` is another one; at the first batch or count, if a list
        and the files differ or a split is empty; at a batch, if a file is damaged or
        not mono 16-bit PCM at 16 kHz.

    Example:
      >>> task = SpeechCommands(data_dir="~/speech_commands_v0.02", sample_rate=8_000)
      >>> task.spec.length, task.spec.d_output
      (8000, 35)

    References:
      Warden, `Speech Commands: A Dataset for Limited-Vocabulary Speech Recognition
      <https://arxiv.org/abs/1804.03209>`_, 2018; at both rates: Gu, Goel and Ré,
      `Efficiently Modeling Long Sequences with Structured State Spaces
      <https://arxiv.org/abs/2111.00396>`_, 2021, section 4.3
    """

    data_dir: str | None = None
    sample_rate: Literal[16_000, 8_000] = recordings.SAMPLE_RATE

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def spec(self) -> base.TaskSpec:
        """One sample per step, one of 35 classes per sequence."""
        return base.TaskSpec(
            length=self.sample_rate,
            inputs="vector",
            d_input=1,
            targets="classification",
            d_output=len(recordings.WORDS),
            l_output=None,
        )

    def data_files(self) -> dict[str, Path]:
        """Returns the recordings and lists by their paths in the folder."""
        return recordings.data_files(self.data_dir)

    @override
    def n_examples(self, split: base.Split) -> int:
        base.check_split(split)
        return len(recordings.files(self.data_dir)[split].labels)

    @override
    def select(
        self, split: base.Split, indices: np.ndarray, loss_mask: np.ndarray
    ) -> base.Batch:
        paths, labels = recordings.files(self.data_dir)[split]
        inputs = np.zeros((len(indices), self.sample_rate, 1), np.float32)
        stride = recordings.SAMPLE_RATE // self.sample_rate
        # From disk per batch: the train split has 2.7 GB.
        for i, row in enumerate(indices):
            samples = recordings.read(paths[row])[: recordings.SAMPLE_RATE : stride]
            inputs[i, : len(samples), 0] = samples
        # The magnitude of the smallest int16.
        inputs /= 2**15
        return base.Batch(inputs, labels[indices], loss_mask)
