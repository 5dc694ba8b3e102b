"""Tables and figures of the paper on DLR."""

from experiments.coverage import Paper, Table, cells
from experiments.dlr import answers

_ATOMIC = (
    "shift", "cumsum", "cummax", "select_fixed", "solve_fixed", "reverse", "solve",
    "select", "sort", "context_shift", "mips",
)  # fmt: skip
_OF_TABLE_6 = tuple(
    task for task in _ATOMIC if task not in ("cumsum", "cummax", "mips")
)
_TWO_OF_512 = {"n_layers": ("2",), "length": ("512",)}
_GPU = "needs a GPU"
_SMALL_ATOMIC = (
    r"dlr/atomic:task=\w+(,model=(dss|attention))?(,n_layers=\d)?,size=small"
)

PAPER = Paper(
    "Gupta, Mehta and Berant, 2022: Simplifying and Understanding State Space "
    "Models with Diagonal Linear RNNs",
    "https://arxiv.org/abs/2212.00768",
    (
        Table(
            "Table 1",
            "atomic tasks",
            "which tasks do one and several layers of DLR, DSS and attention learn?",
            cells("dlr/atomic", task=_ATOMIC)
            + cells("dlr/atomic", task=_ATOMIC, model=("dss", "attention"))
            + cells("dlr/atomic", task=_ATOMIC, n_layers=("6",))
            + cells("dlr/atomic", task=_ATOMIC, n_layers=("6",), length=("512",))
            + cells("dlr/atomic", task=_ATOMIC, model=("attention",), **_TWO_OF_512),
            reduced=(_SMALL_ATOMIC,),
            references=(r"dlr/atomic:task=\w+,size=small",),
            reason=_GPU,
            answer=answers.TABLE_1,
        ),
        Table(
            "Table 2",
            "Shift at 16,384 to 1,048,576 steps",
            "up to which length does one layer learn to shift?",
            cells(
                "dlr/long_shift",
                model=("", "dlr_prod", "dss", "sgconv"),
                length=("", "65536", "262144", "1048576"),
            ),
            reduced=(r"dlr/long_shift:.*size=small",),
            programs=("python -m benchmarks --suite=long_shift",),
            reason=_GPU,
            answer=answers.TABLE_2,
        ),
        Table(
            "Table 3",
            "higher-order tasks",
            "values of subtrees and masks of curves: DLR, DSS or local attention?",
            cells("dlr/listops_subtrees", model=("", "dss", "local_attention"))
            + ("dlr/pathfinder_segmentation:model=local_attention",)
            + cells(
                "dlr/pathfinder_segmentation",
                pixels=("", "256", "512"),
                model=("", "dss"),
            ),
            reduced=(
                r"dlr/listops_subtrees:.*size=small",
                r"dlr/pathfinder_segmentation:.*size=small",
            ),
            references=(
                r"dlr/listops_subtrees:size=small",
                r"dlr/pathfinder_segmentation:pixels=64,size=small",
            ),
            reason=_GPU,
            answer=answers.TABLE_3,
        ),
        Table(
            "Table 4",
            "Long Range Arena and Speech Commands",
            "one label per sequence: is DLR as good as S4?",
            cells(
                "dlr/arena",
                task=("listops", "text", "retrieval", "pathfinder", "pathx"),
            )
            + ("dlr/speech",),
            reason=f"{_GPU}; Retrieval and Speech Commands: data not available to us",
        ),
        Table(
            "Table 5",
            "language models of books (PG-19)",
            "is a linear DLR with experts as good as attention?",
            cells(
                "dlr/pg19",
                model=("transformer",),
                experts=("1", "", "64"),
                norm=("", "post"),
            )
            + cells("dlr/pg19", experts=("", "64"), norm=("", "post")),
            reduced=(r"dlr/pg19:(model=\w+,)?size=small",),
            reason=f"{_GPU}; PG-19 not available to us; the paper names neither the "
            "unit of its numbers nor the tokenizer; with experts a prediction depends "
            "on later tokens",
            note="Tokens of `size=small` are bytes of other books than those of PG-19, "
            "and its experts choose among the tokens of a batch, later ones included: "
            "the perplexity per byte is not that of a causal model, and is comparable "
            "with no other one.",
            answer=answers.TABLE_5,
        ),
        Table(
            "Table 6",
            "attention with feed-forward layers",
            "does attention with as many parameters as a DLR learn more tasks?",
            cells("dlr/atomic", task=_OF_TABLE_6, model=("attention_feedforward",))
            + cells(
                "dlr/atomic",
                task=_OF_TABLE_6,
                model=("attention_feedforward",),
                **_TWO_OF_512,
            ),
            reduced=(r"dlr/atomic:.*model=attention_feedforward.*size=small",),
            reason=_GPU,
            answer=answers.TABLE_6,
        ),
        Table(
            "Table 7",
            "hyperparameters",
            "hyperparameters of tables 1 to 5",
            reason="the settings of the experiments above; no results",
        ),
        Table(
            "Figure 1",
            "an image of Pathfinder-Segmentation",
            "what is the task?",
            programs=("python -m experiments.dlr.figures.segmentation --data=RUN",),
            reason="an example of the task; no results",
        ),
        Table(
            "Figure 2",
            "errors on ListOps-SubTrees by height",
            "up to which height are subtrees evaluated?",
            cells("dlr/listops_subtrees"),
            reduced=(r"dlr/listops_subtrees:(model=\w+,)?size=small",),
            programs=("python -m experiments.dlr.figures.error_by_height --data=RUN",),
            reason=_GPU,
        ),
        Table(
            "Figure 3",
            "predicted masks",
            "what do the masks of table 3 look like?",
            cells("dlr/pathfinder_segmentation", pixels=("256", "512")),
            reduced=(r"dlr/pathfinder_segmentation:.*size=small",),
            programs=("python -m experiments.dlr.figures.segmentation --data=RUN",),
            reason=_GPU,
        ),
        Table(
            "Figure 4",
            "code of the layer",
            "how short is an implementation?",
            reason="a listing; no results",
        ),
    ),
)
"""All tables and figures of the paper."""
