r"""Pathfinder-Segmentation: the class of each pixel of dashed curves; table 3.

    python -m launch.prepare --dataset=pathfinder_segmentation128 --data_dir=FOLDER
    python -m launch.train --config=experiments/dlr/pathfinder_segmentation.py \
        --data_dir=FOLDER --workdir=runs/segmentation
    python -m experiments.dlr.figures.segmentation --data=runs/segmentation

The first command generates the images once for several runs. Without ``--data_dir``
they are generated in training. The last command draws predicted masks.

==========  ========================================================================
variant     description
==========  ========================================================================
pixels      side length of an image: 128 (default), 256 or 512 of table 3 (paper, DLR:
            macro-F1 0.968, 0.940 and 0.763), or 64 or 32, the setting of 128 on small
            images
model       ``dlr`` (default), ``dss``, with the exponential kernel (paper: 0.944,
            0.894 and 0.604), ``local_attention`` (paper: 0.952 at 128 pixels), or
            ``patch``, which sees the 9 x 9 pixels around each pixel and no more: the
            kernels of its DLR have one tap. Its encoder is a class of this package:
            ``launch.evaluate --packages=experiments``
size        ``full`` (default), or ``small``, 3 layers of 32 channels, which trains on
            64 pixels on one CPU core in a quarter of an hour, local attention in
            three hours on two, in windows of the same share of an image; on 32 pixels
            for four times the steps
==========  ========================================================================

The settings are those of the paper, completed from the authors' repository: pre-norm
blocks with the scalar norm and a GLU, bidirectional, no dropout, no weight decay. The
cosine schedules of 256 and 512 pixels do not end with the training. Kernels are shorter
than the images: 8,192 taps for 128 pixels and 32,768 for 256 and 512; those of DSS,
which are not cut, and those of 32 and 64 pixels are as long as the images. At 512
pixels the authors train the eigenvalues of DSS at the rate 1e-4; here all of its
parameters have the rate 5e-4. The paper's F1 is the mean over batches of the F1 of
each; here it is that of the whole split.
"""

import dataclasses
from typing import Literal, NamedTuple

from ml_collections import ConfigDict

from experiments.dlr import attention
from experiments.dlr.patches import PatchEncoder
from ssm_jax.config import Config, spec
from ssm_jax.layers import ChannelMixing, RecurrentLayer
from ssm_jax.models import Block, SequenceModel, StepHead, VectorEncoder
from ssm_jax.recurrences import DLR, DSS
from ssm_jax.tasks import PathfinderSegmentation
from ssm_jax.training import Optimizer, TrainConfig
from ssm_jax.variants import format_variant, parse_variant

PAPER = {
    "": 0.968,
    "pixels=256": 0.940,
    "pixels=512": 0.763,
    "model=dss": 0.944,
    "pixels=256,model=dss": 0.894,
    "pixels=512,model=dss": 0.604,
    "model=local_attention": 0.952,
}


class Setting(NamedTuple):
    """Sizes and training of a model.

    Attributes:
      n_layers: Number of blocks.
      d_model: Number of channels.
      d_state: Number of states per channel.
      max_kernel_length: Number of taps of each direction of DLR. None: no limit.
      learning_rate: Maximum learning rate of DLR and of patches.
      dss_learning_rate: Maximum learning rate of DSS and of local attention.
      batch_size: Number of images per step, over all devices.
      steps: Number of steps.
      warmup_steps: Number of steps of the linear warmup.
      schedule_steps: Number of steps until the end of the cosine decay.
      window: Length of a window of local attention.
    """

    n_layers: int
    d_model: int
    d_state: int
    max_kernel_length: int | None
    learning_rate: float
    dss_learning_rate: float
    batch_size: int
    steps: int
    warmup_steps: int
    schedule_steps: int
    window: int = 1024


_SETTING_128 = Setting(5, 128, 1024, 2**13, 1e-4, 1e-3, 16, 150_000, 3_000, 150_000)
FULL = {
    32: _SETTING_128._replace(max_kernel_length=None),
    64: _SETTING_128._replace(max_kernel_length=None),
    128: _SETTING_128,  # 30 epochs
    # 40 and 21 epochs.
    256: Setting(6, 128, 1024, 2**15, 5e-5, 5e-4, 18, 177_760, 1_000, 200_000),
    512: Setting(12, 64, 2048, 2**15, 1e-5, 5e-4, 14, 119_994, 200, 600_000),
}
# A window is a sixteenth of an image, as at 128 pixels.
SMALL = Setting(3, 32, 64, None, 4e-3, 4e-3, 8, 1_500, 100, 1_500, window=256)
SMALL_32 = SMALL._replace(steps=6_000, schedule_steps=6_000, window=64)


@dataclasses.dataclass(frozen=True)
class Variant:
    """Choices of the variant."""

    pixels: Literal[32, 64, 128, 256, 512] = 128
    model: Literal["dlr", "dss", "local_attention", "patch"] = "dlr"
    size: Literal["full", "small"] = "full"


def get_config(variant: str = "") -> Config:
    """Returns the config of a variant."""
    choices = parse_variant(variant, Variant)
    variant, small = format_variant(choices), choices.size == "small"
    setting = FULL[choices.pixels]
    if small:
        setting = SMALL_32 if choices.pixels == 32 else SMALL
    task = spec(PathfinderSegmentation, size=choices.pixels)
    training = spec(
        TrainConfig,
        steps=setting.steps,
        batch_size=setting.batch_size,
        seed=1112,
        log_every=100,
        # Twice an epoch, as published.
        evaluate_every=80_000 // setting.batch_size // 2,
    )
    if small:
        task.update(n_train=12_000, n_validation=240, n_test=1_200)
        training.update(seed=0, log_every=50, evaluate_every=250)
    rate = setting.dss_learning_rate
    if choices.model in ("dlr", "patch"):
        rate = setting.learning_rate
    return ConfigDict(
        {
            "experiment": "dlr/pathfinder_segmentation",
            "variant": variant,
            "paper": PAPER.get(variant),
            "task": task,
            "model": _model(choices.model, setting),
            "optimizer": spec(
                Optimizer,
                learning_rate=rate,
                schedule="cosine",
                warmup_steps=setting.warmup_steps,
                schedule_steps=setting.schedule_steps,
            ),
            "training": training,
        }
    )


def _model(name: str, setting: Setting) -> Config:
    """Pre-norm blocks of a bidirectional layer, with a prediction at each pixel."""
    layer, encoder = LAYERS[name](setting), VectorEncoder
    if name == "patch":
        encoder = PatchEncoder
    return spec(
        SequenceModel,
        encoder=spec(encoder, d_model=setting.d_model),
        block=spec(Block, layer=layer, norm="scalar", prenorm=True),
        n_layers=setting.n_layers,
        head=spec(StepHead, d_output=3),
    )


def _dlr(setting: Setting) -> Config:
    dlr = spec(DLR, d_state=setting.d_state, bidirectional=True)
    dlr.max_kernel_length = setting.max_kernel_length
    return _recurrent(dlr)


def _dss(setting: Setting) -> Config:
    dss = spec(DSS, d_state=setting.d_state, eigenvalue_init="lin", bidirectional=True)
    dss.update(dt_min=1e-4, dt_max=1e-2)
    return _recurrent(dss)


def _local_attention(setting: Setting) -> Config:
    return attention.local_attention(bidirectional=True, window=setting.window)


def _patch(setting: Setting) -> Config:
    # A tap of a bidirectional kernel is one in each direction.
    return _recurrent(spec(DLR, d_state=setting.d_state, max_kernel_length=1))


def _recurrent(recurrence: Config) -> Config:
    mixing = spec(ChannelMixing, kind="glu")
    return spec(RecurrentLayer, recurrence=recurrence, mixing=mixing)


LAYERS = {
    "dlr": _dlr,
    "dss": _dss,
    "local_attention": _local_attention,
    "patch": _patch,
}
"""The spec of the layer of each model, from the setting."""
