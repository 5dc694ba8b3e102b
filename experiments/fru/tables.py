"""Tables and figures of the paper on the FRU."""

from experiments.page import Gradients, Grid, Paper, Pictures, Table, cells

_UNITS = ("fru", "sru", "lstm", "rnn")
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
            cells(
                "fru/pixel_mnist",
                inputs=("pixels",),
                model=("fru", "fru40", "sru", "lstm", "rnn"),
            ),
            reduced=(r"fru/pixel_mnist:inputs=pixels,model=\w+,size=\w+",),
            references=(r"fru/pixel_mnist:inputs=pixels,model=fru(,size=\w+)?",),
            note=_SPLIT,
        ),
        Table(
            "Table 2",
            "permuted MNIST",
            cells("fru/pixel_mnist", inputs=("permuted",), model=_UNITS),
            reduced=(r"fru/pixel_mnist:inputs=permuted,model=\w+,size=\w+",),
            references=(r"fru/pixel_mnist:inputs=permuted,model=fru(,size=\w+)?",),
            note=_SPLIT,
        ),
        Table(
            "Table 3",
            "IMDB",
            ("fru/imdb:model=fru", "fru/imdb:model=fru,n_frequencies=1")
            + cells("fru/imdb", model=_UNITS[1:]),
            reduced=(r"fru/imdb:model=\w+(,n_frequencies=1)?,size=small",),
            references=(r"fru/imdb:model=fru", r"fru/imdb:model=fru,size=small"),
            note="The last word of a review is its last step here; the units of the "
            "authors also process the padding after it.",
        ),
        Table(
            "Figures 3 and 4",
            "mixtures of curves (the paper prints no numbers)",
            cells(
                "fru/mixture",
                curves=("sines", "poly5", "poly10", "poly15"),
                model=_UNITS,
            ),
            reduced=(r"fru/mixture:.*size=small",),
            references=_MIXTURE,
        ),
        Table(
            "Figures 10 and 11",
            "MNIST row by row (the paper prints no numbers)",
            reduced=(
                r"fru/frequencies:inputs=rows,.*",
                r"fru/pixel_mnist:inputs=rows,.*",
            ),
            references=(r"fru/frequencies:inputs=rows,n_frequencies=20",),
            note="The images and units are those of the paper, which trains for 50 "
            "epochs, here 48.9; the ranges of frequencies, 0.25 to 25 or, beside other "
            "units, to 28, and the learning rates are ours.",
        ),
        Table(
            "Figure 12",
            "frequencies on MNIST pixel by pixel (the paper prints no numbers)",
            (
                "fru/frequencies:inputs=pixels,n_frequencies=20",
                "fru/frequencies:inputs=pixels,n_frequencies=20,frequency_max=784",
            ),
            reduced=(r"fru/frequencies:inputs=pixels,.*size=small",),
            references=(r"fru/frequencies:.*frequency_max=196,size=small",),
        ),
        Pictures(
            "Figures 6 to 8: accuracy by epoch",
            """\
The curves of the units that were run: the part of the validation split that is
misclassified; one seed. Drawn by `python -m experiments.fru.figures.learning`.
""",
            {"Validation error by step of each unit": "fru/learning.png"},
        ),
        Gradients(
            "Figure 5: gradients by the initial state",
            """\
The L2 norm of the gradient of the loss of the prediction after `t` steps by the state
before the first one, at the end of the training; the median over seeds.
""",
            r"fru/mixture:curves=poly5,model=\w+,size=small",
            (16, 56, 96, 136, 176),
            {"Norm of the gradient by step, of each unit": "fru/gradients.png"},
        ),
        Grid(
            "Mixtures of curves: the part of the variance that each unit misses",
            "1 - R2 of each unit on each mixture of curves.\n",
            "fru/mixture:curves={row[0]},{column}{row[1]}",
            rows={
                f"{curves}{' small' * bool(size)}": (curves, size)
                for size in ("", ",size=small")
                for curves in ("sines", "poly5", "poly10", "poly15")
            },
            columns={unit.upper(): f"model={unit}" for unit in reversed(_UNITS)},
            one_minus=True,
        ),
        Pictures(
            "Figure 2: temperatures of Beijing",
            "Drawn by `python -m experiments.fru.figures.temperatures --data=DATA`.\n",
            {"temperatures of Beijing": "fru/temperatures.png"},
        ),
        Pictures(
            "Figure 9: a polynomial that decays do not approximate",
            "Drawn by `python -m experiments.fru.figures.expressive`.\n",
            {"a polynomial that decays do not approximate": "fru/expressive.png"},
        ),
    ),
)
"""What the paper has results of, and what is shown beside them."""
