"""Tables and figures of the paper on the FRU."""

from experiments.coverage import Paper, Table, cells
from experiments.fru import answers

_UNITS = ("fru", "sru", "lstm", "rnn")
_GPU = "needs a GPU"
_CURVES = "the paper prints curves"
_FIGURES = "python -m experiments.fru.figures"
_SPLIT = (
    "The test images are those of the published split; the authors test on a fifth of "
    "all images, pooled."
)
_MIXTURE = (r"fru/mixture:curves=(sines|poly\d+),model=fru(,size=small)?",)

PAPER = Paper(
    "Zhang, Lin, Song and Dhillon, 2018: Learning Long Term Dependencies via "
    "Fourier Recurrent Units",
    "https://arxiv.org/abs/1803.06585",
    (
        Table(
            "Table 1",
            "MNIST pixel by pixel",
            "784 steps: does the FRU learn more than SRU, LSTM and RNN?",
            cells(
                "fru/pixel_mnist",
                inputs=("pixels",),
                model=("fru", "fru40", "sru", "lstm", "rnn"),
            ),
            reduced=(r"fru/pixel_mnist:inputs=pixels,model=\w+,size=\w+",),
            references=(r"fru/pixel_mnist:inputs=pixels,model=fru(,size=\w+)?",),
            reason=_GPU,
            note=_SPLIT,
            answer=answers.TABLE_1,
        ),
        Table(
            "Table 2",
            "permuted MNIST",
            "the same with the pixels in a random order",
            cells("fru/pixel_mnist", inputs=("permuted",), model=_UNITS),
            reduced=(r"fru/pixel_mnist:inputs=permuted,model=\w+,size=\w+",),
            references=(r"fru/pixel_mnist:inputs=permuted,model=fru(,size=\w+)?",),
            reason=_GPU,
            note=_SPLIT,
            answer=answers.TABLE_2,
        ),
        Table(
            "Table 3",
            "IMDB",
            "film reviews: are one or five frequencies enough?",
            ("fru/imdb:model=fru", "fru/imdb:model=fru,n_frequencies=1")
            + cells("fru/imdb", model=_UNITS[1:]),
            reduced=(r"fru/imdb:model=\w+(,n_frequencies=1)?,size=small",),
            references=(r"fru/imdb:model=fru", r"fru/imdb:model=fru,size=small"),
            note="The last word of a review is its last step here; the units of the "
            "authors also process the padding after it.",
            answer=answers.TABLE_3,
        ),
        Table(
            "Figures 3 and 4",
            "mixtures of curves (the paper prints no numbers)",
            "is the error of the FRU orders of magnitude smaller?",
            cells(
                "fru/mixture",
                curves=("sines", "poly5", "poly10", "poly15"),
                model=_UNITS,
            ),
            reduced=(r"fru/mixture:.*size=small",),
            references=_MIXTURE,
            reason=_CURVES,
            answer=answers.FIGURES_3_AND_4,
        ),
        Table(
            "Figures 10 and 11",
            "MNIST row by row (the paper prints no numbers)",
            "28 steps: which numbers and ranges of frequencies learn most, and do they "
            "learn more than other units?",
            reduced=(
                r"fru/frequencies:inputs=rows,.*",
                r"fru/pixel_mnist:inputs=rows,.*",
            ),
            references=(r"fru/frequencies:inputs=rows,n_frequencies=20",),
            reason=f"{_CURVES}, and the ranges that it varies in their legends only",
            note="The images and units are those of the paper, which trains for 50 "
            "epochs, here 48.9; the ranges of frequencies, 0.25 to 25 or, beside other "
            "units, to 28, and the learning rates are ours.",
            answer=answers.FIGURES_10_AND_11,
        ),
        Table(
            "Figure 12",
            "frequencies on MNIST pixel by pixel (the paper prints no numbers)",
            "784 steps: are frequencies up to 25 enough?",
            (
                "fru/frequencies:inputs=pixels,n_frequencies=20",
                "fru/frequencies:inputs=pixels,n_frequencies=20,frequency_max=784",
            ),
            reduced=(r"fru/frequencies:inputs=pixels,.*size=small",),
            references=(r"fru/frequencies:.*frequency_max=196,size=small",),
            reason=f"{_GPU}; {_CURVES}",
            answer=answers.FIGURE_12,
        ),
        Table(
            "Figure 1",
            "the unit",
            "how is the unit built?",
            reason="a diagram; no results",
        ),
        Table(
            "Figure 2",
            "temperatures of Beijing",
            "how well do few waves fit a series?",
            programs=(f"{_FIGURES}.temperatures --data=DATA",),
            picture="fru/temperatures.png",
            reason=_CURVES,
            answer=answers.FIGURE_2,
        ),
        Table(
            "Figure 5",
            "gradients by the initial state",
            "are the gradients of the FRU constant over time?",
            programs=(
                "python -m launch.train --config=experiments/fru/mixture.py:"
                "curves=poly5,model=fru --workdir=RUN",
                "python -m launch.report --workdirs=RUN",
            ),
            reason=f"{_CURVES}; records have no gradients, which training on mixtures "
            "measures and the second command draws",
        ),
        Table(
            "Figures 6 and 7",
            "accuracy of tables 1 and 2 by epoch",
            "does the FRU learn faster?",
            cells("fru/pixel_mnist", inputs=("pixels", "permuted"), model=_UNITS),
            reduced=(r"fru/pixel_mnist:inputs=(pixels|permuted),model=\w+,size=\w+",),
            reason=f"{_GPU}; {_CURVES}",
        ),
        Table(
            "Figure 8",
            "accuracy of table 3 by epoch",
            "does the FRU learn faster?",
            cells("fru/imdb", model=_UNITS),
            reduced=(r"fru/imdb:model=\w+(,n_frequencies=1)?,size=small",),
            reason=_CURVES,
        ),
        Table(
            "Figure 9",
            "a polynomial that decays do not approximate",
            "how many decays and waves approximate it?",
            programs=(f"{_FIGURES}.expressive",),
            picture="fru/expressive.png",
            answer=answers.FIGURE_9,
            reason=_CURVES,
        ),
    ),
)
"""All tables and figures of the paper."""
