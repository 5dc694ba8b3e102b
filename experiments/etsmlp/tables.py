"""Tables and figures of the paper on ETSMLP."""

from experiments import throughput
from experiments.coverage import Paper, Table, cells
from experiments.etsmlp import answers

_GATES = ("", "gate")
_GPU = "needs a GPU"

PAPER = Paper(
    "Chu and Lin, 2024: Incorporating Exponential Smoothing into MLP",
    "https://arxiv.org/abs/2403.17445",
    (
        Table(
            "Table 1",
            "Long Range Arena",
            "is exponential smoothing as good as a state space model?",
            tuple(
                cell
                for task in ("listops", "text", "retrieval", "image", "pathfinder")
                for cell in cells(f"etsmlp/{task}", model=_GATES)
            )
            + cells("etsmlp/pathx", model=_GATES, small_change=("true",)),
            reduced=(r"etsmlp/(listops|text):(model=gate,)?size=small",),
            reason=f"{_GPU}; Retrieval and Image: data not available to us",
            answer=answers.TABLE_1,
        ),
        Table(
            "Table 2",
            "language",
            "without pretraining, is it as good as a Transformer; does a gate help?",
            cells(
                "etsmlp/language",
                dataset=("cola", "sst2", "imdb", "qqp", "mrpc", "mnli", "qnli"),
                model=_GATES,
            ),
            reduced=(r"etsmlp/language:dataset=\w+,(model=gate,)?size=small",),
            references=(r"etsmlp/language:dataset=\w+,size=small",),
            reason=f"{_GPU}; QQP, MNLI and QNLI: data not available to us",
            note="The accuracies that the paper prints for CoLA are that of the "
            "majority class, to two digits.",
            answer=answers.TABLE_2,
        ),
        Table(
            "Table 3",
            "ablations on ListOps",
            "are complex factors, alpha, beta and omega necessary?",
            cells(
                "etsmlp/listops",
                ablation=("", "real", "no_alpha", "no_beta", "no_omega"),
            ),
            reduced=(r"etsmlp/listops:(ablation=\w+,)?size=small",),
            references=(r"etsmlp/listops:size=small",),
            reason=_GPU,
            answer=answers.TABLE_3,
        ),
        Table(
            "Table 4",
            "initializations on ListOps",
            "does a ring of initial eigenvalues learn more than a single one?",
            cells(
                "etsmlp/listops",
                init=(
                    "", "stable_0.3", "stable_0.5", "stable_0.7", "ring_0.1_0.6",
                    "ring_0.6_0.9",
                ),
            ),
            reduced=(r"etsmlp/listops:(init=[\w.]+,)?size=small",),
            references=(r"etsmlp/listops:size=small",),
            reason=_GPU,
            answer=answers.TABLE_4,
        ),
        Table(
            "Table 5",
            "hyperparameters",
            "hyperparameters of tables 1 and 2",
            reason="the settings of the experiments above; no results",
        ),
        Table(
            "Figure 1",
            "state space models and exponential smoothing",
            "how are the models related?",
            reason="a diagram; no results",
        ),
        Table(
            "Figure 2",
            "the layer",
            "how is the layer built?",
            reason="a diagram; no results",
        ),
        Table(
            "Figure 3",
            "words per second and memory by length",
            "is training faster than that of a Transformer, with less memory?",
            programs=("python -m benchmarks --suite=throughput",),
            measured=throughput.TITLE,
            reason=f"the published size {_GPU}; the paper prints curves",
        ),
    ),
)  # fmt: skip
"""All tables and figures of the paper; the figure 4 of its text is table 4."""
