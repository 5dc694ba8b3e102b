"""Tables and figures of the paper on ETSMLP."""

from experiments.page import Benchmark, Grid, Paper, Table, cells

_GATES = ("", "gate")

PAPER = Paper(
    "Chu and Lin, 2024: Incorporating Exponential Smoothing into MLP",
    "https://arxiv.org/abs/2403.17445",
    (
        Table(
            "Table 1",
            "Long Range Arena",
            tuple(
                cell
                for task in ("listops", "text", "retrieval", "image", "pathfinder")
                for cell in cells(f"etsmlp/{task}", model=_GATES)
            )
            + cells("etsmlp/pathx", model=_GATES, small_change=("true",)),
            reduced=(r"etsmlp/(listops|text):(model=\w+,)?size=small",),
            references=(r"etsmlp/listops:size=small",),
        ),
        Table(
            "Table 2",
            "language",
            cells(
                "etsmlp/language",
                dataset=("cola", "sst2", "imdb", "qqp", "mrpc", "mnli", "qnli"),
                model=_GATES,
            ),
            reduced=(r"etsmlp/language:dataset=\w+,(model=gate,)?size=small",),
            references=(r"etsmlp/language:dataset=\w+,size=small",),
            note="The accuracies that the paper prints for CoLA are that of the "
            "majority class, to two digits.",
        ),
        Table(
            "Table 3",
            "ablations on ListOps",
            cells(
                "etsmlp/listops",
                ablation=("", "real", "no_alpha", "no_beta", "no_omega"),
            ),
            reduced=(r"etsmlp/listops:(ablation=\w+,)?size=small",),
            references=(r"etsmlp/listops:size=small",),
        ),
        Table(
            "Table 4",
            "initializations on ListOps",
            cells(
                "etsmlp/listops",
                init=(
                    "", "stable_0.3", "stable_0.5", "stable_0.7", "ring_0.1_0.6",
                    "ring_0.6_0.9",
                ),
            ),
            reduced=(r"etsmlp/listops:(init=[\w.]+,)?size=small",),
            references=(r"etsmlp/listops:size=small",),
        ),
        Grid(
            "Ablations where memory decides",
            """\
R2 on Shift (`etsmlp/shift`), noise that is to be repeated after eight delays of up to
7/8 of the length: two causal layers of 128 channels, 3,000 steps. A copy of the input
has 0.22, the mean 0. Without omega a layer has no shortcut past the smoothing. Results
without a deviation are of one seed.
""",
            "etsmlp/shift:length={row}{column}",
            rows={"16 steps": 16, "64 steps": 64, "256 steps": 256},
            columns={
                "ETSMLP": "",
                "real factors": ",ablation=real",
                "no alpha": ",ablation=no_alpha",
                "no beta": ",ablation=no_beta",
                "no omega": ",ablation=no_omega",
            },
        ),
        Benchmark(
            "Figure 3: words per second and memory by length",
            """\
The question of figure 3 at a reduced size: causal language models of 1.0 to 1.6 million
parameters where the paper has 30, trained on one sequence at a time. Their numbers of
parameters are within a few percent but for the table of positions of the Transformer,
which grows with the length, and whose attention is evaluated in blocks of queries.
Tokens per second are those of the gradient of the loss, by the fastest of some timings,
for which the models alternate; memory is that of temporary arrays and results, in MiB.
Measured by `python -m benchmarks --suite=throughput` on {machine}. Other processes on
the machine add to the seconds, so that speeds that differ by less than a factor of 1.5
do not count as different.
""",
            "throughput.json",
            {
                "steps": lambda row: f"{row['length']:,}",
                "model": lambda row: row["what"],
                "million parameters": lambda row: f"{row['parameters'] / 1e6:.1f}",
                "tokens per second": lambda row: f"{row['tokens_a_second']:,.0f}",
                "memory": lambda row: f"{row['step_bytes'] / 2**20:,.0f}",
            },
            pictures={
                "Tokens per second and memory by length": "etsmlp/throughput.png"
            },
        ),
    ),
)  # fmt: skip
"""What the paper has results of; the figure 4 of its text is table 4."""
