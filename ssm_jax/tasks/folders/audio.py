"""AudioFolder: recordings in a folder with one subfolder per class."""

import dataclasses
import functools
import math
from collections.abc import Collection
from typing import Annotated, Any, ClassVar

import numpy as np
from typing_extensions import override

from ssm_jax.fields import Interval, PositiveFloat, PositiveInt
from ssm_jax.tasks import base
from ssm_jax.tasks.folders import labelled_files, sound_files

Rate = Annotated[int, Interval(ge=1, le=1_000_000)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class AudioFolder(labelled_files.LabelledFiles):
    r"""Classification: the class of a recording, sample by sample.

    A file is an example: no recording is in two splits. WAV of 8, 16, 24 and 32 bits or
    floats is read without further packages; FLAC, OGG, Opus, MP3 and AIFF need the
    extra ``[audio]``. Other files are left out with a warning that counts them, and
    names that begin with a dot without one. Links are followed.

    Attributes:
      data_dir: Folder with one folder of recordings per class, which may have
        subfolders. If it has ``train`` and also ``validation`` (or ``val``, ``valid``)
        or ``test``, these are the splits, each with its class folders.
      classes: Names of the class folders, in the order of their indices; others are not
        read. None means all, sorted; then they change with the folder.
      group: Regular expression with one group, which is searched in the path of each
        file in ``data_dir``: what it matches, such as a speaker, is never in two
        splits. ``r"/(\w+)_nohash"`` is that of Speech Commands.
      validation_fraction: About this part of the files or groups is for validation, and
      test_fraction: this for testing.
      class_weight: ``"balanced"`` for classes of different frequency; see `TaskSpec`.
      sample_rate: Samples per second. Files of others are resampled with a low-pass.
      length: Number of samples: longer recordings are cut there, which a warning
        counts, and shorter ones are padded.
      seconds: Instead of ``length``, the duration.
      channels: Number of channels, which are the features; files of others are refused.
        None means that channels are averaged.

    Batch:
      inputs: float32, ``(b, length, 1)``, or ``(b, length, channels)``: samples, those
        of integers in [-1, 1), zeros after the end.
      targets: int32, ``(b,)``, the index in `class_names`.
      loss_mask: bool, ``(b,)``, false in the rows that pad the last batch.
      mask: bool, ``(b, length)``, false after the end of a recording; None if none of
        the set is shorter.

    Splits: drawn from hashes of the names, in each class or by ``group``, and therefore
    the same on every machine; a file that is added moves no other, except where a split
    would have none of a class of three files or more. Of a folder with its own splits,
    validation or test is drawn from train if it has none. Each class must have a train
    example, and a split that is asked for an example. See `LabelledFiles
    <ssm_jax.tasks.folders.labelled_files.LabelledFiles>` for when files are read.

    A recording whose samples are all equal is no error, as a class of silence may have
    digital zeros; a warning names the first one of each folder, and among new
    recordings that are predicted all of them.

    Raises:
      FileNotFoundError: When files are needed, if the folder does not exist.
      ValueError: A field is out of range; when files are needed, if a folder has less
        than two classes or an empty one, a file is damaged, or a group is in two of the
        folder's own splits; at a batch, if a sample is not finite.

    Example:
      >>> import tempfile
      >>> from pathlib import Path
      >>> from scipy.io import wavfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     for i in range(12):
      ...         Path(folder, "ab"[i % 2]).mkdir(exist_ok=True)
      ...         samples = np.full(4_410, 99, np.int16)
      ...         wavfile.write(f"{folder}/{'ab'[i % 2]}/{i}.wav", 44_100, samples)
      ...     task = AudioFolder(data_dir=folder, sample_rate=8_000, seconds=0.2)
      ...     batch = task.batch("train", 0, 4, seed=0)
      >>> task.class_names(), batch.inputs.shape, batch.mask.sum(-1)
      (('a', 'b'), (4, 1600, 1), array([800, 800, 800, 800]))
    """

    sample_rate: Rate
    length: PositiveInt | None = None
    seconds: PositiveFloat | None = None
    channels: PositiveInt | None = None

    what: ClassVar[str] = "recordings"

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.length is None) == (self.seconds is None):
            raise ValueError(
                "`length` or `seconds` must be given, and one of them, got "
                f"{self.length} and {self.seconds}; the other is None."
            )
        if self.seconds is not None and not 1 <= self._n_steps() < 2**31:
            raise ValueError(
                f"`seconds` must be from one sample to 2^31 at {self.sample_rate} per "
                f"second, got {self.seconds}; 1.0 is usual."
            )

    @property
    def spec(self) -> base.TaskSpec:
        """Samples as steps; one class per sequence."""
        return base.TaskSpec(
            length=self._n_steps(),
            inputs="vector",
            d_input=self.channels or 1,
            targets="classification",
            d_output=len(self.class_names()),
            l_output=None,
            class_weight=self.class_weight,
        )

    def preprocessing(self) -> dict[str, Any]:
        """Describes inputs and classes, in values of JSON, for an export."""
        return {
            "sample_rate": self.sample_rate,
            "channels": self.channels or "mean",
            "classes": [*self.class_names()],
        }

    @override
    @classmethod
    def suffixes(cls) -> Collection[str]:
        return sound_files.WAV + sound_files.OTHERS

    read_header = staticmethod(sound_files.read_header)

    @property
    @override
    def padded(self) -> bool:
        return self._shortest < self._n_steps()

    @functools.cached_property
    def _shortest(self):
        """The steps of the shortest recording; warns of those that are cut."""
        length = self._n_steps()
        steps = [-(-h.n * self.sample_rate // h.rate) for h in self.headers]
        if n_cut := sum(n > length for n in steps):
            labelled_files.warn_once(
                f"{n_cut} of {len(steps)} recordings in {self.data_dir} are longer "
                f"than {length} steps ({length / self.sample_rate:g} s) and cut there"
            )
        return min(steps)

    @override
    def check_header(self, header: sound_files.Header) -> str | None:
        if self.channels in (None, header.channels):
            return None
        return f"{header.channels} channels, `channels` is {self.channels}"

    @override
    def is_silent(self, steps: np.ndarray) -> bool:
        return bool(np.ptp(steps, axis=0).max() == 0)

    @override
    def read_steps(self, path: str, header: sound_files.Header) -> np.ndarray:
        # Imported on first use: the other tasks do not need it.
        from scipy import signal

        length = self._n_steps()
        common = math.gcd(self.sample_rate, header.rate)
        up, down = self.sample_rate // common, header.rate // common
        # What the first `length` steps depend on: the filter of `resample_poly` has 10
        # periods of the lower rate on each side.
        n = (length * down + 10 * max(up, down)) // up + 2
        samples = sound_files.read_samples(path, header, n)
        if self.channels is None:
            samples = samples.mean(1, keepdims=True)
        if up != down:
            samples = signal.resample_poly(samples, up, down, axis=0)
        return samples[:length]

    def _n_steps(self):
        if self.length is not None:
            return self.length
        return round((self.seconds or 0) * self.sample_rate)
