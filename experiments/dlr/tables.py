"""Tables and figures of the paper on DLR."""

from experiments.page import Benchmark, Grid, Paper, Table, cells

_ATOMIC = (
    "shift", "cumsum", "cummax", "select_fixed", "solve_fixed", "reverse", "solve",
    "select", "sort", "context_shift", "mips",
)  # fmt: skip
_OF_TABLE_6 = tuple(
    task for task in _ATOMIC if task not in ("cumsum", "cummax", "mips")
)
_TWO_OF_512 = {"n_layers": ("2",), "length": ("512",)}
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
            cells("dlr/atomic", task=_ATOMIC)
            + cells("dlr/atomic", task=_ATOMIC, model=("dss", "attention"))
            + cells("dlr/atomic", task=_ATOMIC, n_layers=("6",))
            + cells("dlr/atomic", task=_ATOMIC, n_layers=("6",), length=("512",))
            + cells("dlr/atomic", task=_ATOMIC, model=("attention",), **_TWO_OF_512),
            reduced=(_SMALL_ATOMIC,),
            references=(r"dlr/atomic:task=\w+,size=small",),
        ),
        Table(
            "Table 2",
            "Shift at 16,384 to 1,048,576 steps",
            cells(
                "dlr/long_shift",
                model=("", "dlr_prod", "dss", "sgconv"),
                length=("", "65536", "262144", "1048576"),
            ),
            reduced=(r"dlr/long_shift:.*size=small",),
        ),
        Table(
            "Table 3",
            "higher-order tasks",
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
                r"dlr/pathfinder_segmentation:pixels=(32|64),size=small",
            ),
        ),
        Table(
            "Table 4",
            "Long Range Arena and Speech Commands",
            cells(
                "dlr/arena",
                task=("listops", "text", "retrieval", "pathfinder", "pathx"),
            )
            + ("dlr/speech",),
            reduced=(r"dlr/arena:.*size=small",),
            references=(r"dlr/arena:task=\w+,size=small",),
        ),
        Table(
            "Table 5",
            "language models of books (PG-19)",
            cells(
                "dlr/pg19",
                model=("transformer",),
                experts=("1", "", "64"),
                norm=("", "post"),
            )
            + cells("dlr/pg19", experts=("", "64"), norm=("", "post")),
            reduced=(r"dlr/pg19:(model=\w+,)?(experts=1,)?size=small",),
            note="Tokens of `size=small` are bytes of other books than those of PG-19. "
            "Experts choose among all tokens of a sequence, later ones included: the "
            "perplexity of a model with experts is not that of a causal model; with "
            "`experts=1` it is.",
        ),
        Table(
            "Table 6",
            "attention with feed-forward layers",
            cells("dlr/atomic", task=_OF_TABLE_6, model=("attention_feedforward",))
            + cells(
                "dlr/atomic",
                task=_OF_TABLE_6,
                model=("attention_feedforward",),
                **_TWO_OF_512,
            ),
            reduced=(r"dlr/atomic:.*model=attention_feedforward.*size=small",),
        ),
        Table(
            "Further settings",
            "other sizes, and bfloat16 beside float32",
            reduced=(r"dlr/digits", r"dlr/atomic:.*size=(demo|narrow).*"),
            references=(r"dlr/atomic:task=\w+,size=narrow",),
        ),
        Grid(
            "Atomic tasks by model",
            """\
R2 of models of the reduced size (`dlr/atomic:task=...,size=small`), on all tasks, of
`length=128`, where those of the paper have 512 or 4,096; sequences of Reverse and Sort
have 256 steps, those of Select and SelectFixed 144. Of 256 test sequences of each task
the picture has that of the highest loss, and the prediction of one layer of DLR by
step; R2 is that of the seed drawn, and dots are the values to be selected. Drawn by
`python -m experiments.dlr.figures.atomic`.
""",
            "dlr/atomic:task={row}{column},size=small",
            rows={task: task for task in _ATOMIC},
            columns={
                "DLR": "",
                "DLR, 6 layers": ",n_layers=6",
                "DSS": ",model=dss",
                "attention, 2 layers": ",model=attention,n_layers=2",
            },
            pictures={"Input, target and prediction of eleven tasks": "dlr/atomic.png"},
        ),
        Grid(
            "Depth",
            """\
R2 on short sequences (`dlr/atomic:task=...,size=short`): Solve of 48 steps, Select of 4
among 32 values, Reverse of 32 values. The mean has an R2 of 0.
""",
            "dlr/atomic:task={row}{column},size=short",
            rows={"Solve": "solve", "Select": "select", "Reverse": "reverse"},
            columns={
                "DLR": "",
                "DLR, 6 layers": ",n_layers=6",
                "attention, 2 layers": ",model=attention,n_layers=2",
            },
        ),
        Grid(
            "Real decays",
            """\
R2 of DLR-R, whose decays and weights are real, at the reduced size. A copy of the input
has 0.22 on Shift, the mean 0.
""",
            "dlr/atomic:task={row}{column},size=small",
            rows={"Shift": "shift", "CumSum": "cumsum", "SelectFixed": "select_fixed"},
            columns={"DLR": "", "DLR-R": ",model=dlr_real"},
        ),
        Grid(
            "Shift by the number of states",
            """\
R2 of one layer of DLR at the reduced size, sequences of 128 steps. A copy of the input
has 0.22.
""",
            "dlr/atomic:task=shift,size=small{row}{column}",
            rows={f"{n} states": f",d_state={n}" for n in (8, 16, 32, 64)}
            | {"256 states": ""},
            columns={"R2": ""},
        ),
        Grid(
            "Higher-order tasks by model",
            """\
The runs of `size=small` above, by the height and the operator of each subtree (the part
of the values that is wrong; `RotaryAttention` is the local attention), and the masks
that they predict for the first test images. Drawn by
`python -m experiments.dlr.figures.error_by_height` and `segmentation`.
""",
            "dlr/{row}{column}size=small",
            rows={
                "accuracy on ListOps-SubTrees": "listops_subtrees:",
                "macro-F1 on Pathfinder-Segmentation, 64 pixels": (
                    "pathfinder_segmentation:pixels=64,"
                ),
            },
            columns={
                "DLR": "",
                "DSS": "model=dss,",
                "local attention": "model=local_attention,",
            },
            pictures={
                "Errors on ListOps-SubTrees by height and operator": (
                    "dlr/error_by_height.png"
                ),
                "Images, target and masks predicted by DLR and DSS": (
                    "dlr/segmentation.png"
                ),
                "Images, target and masks predicted by local attention": (
                    "dlr/segmentation_local_attention.png"
                ),
            },
        ),
        Grid(
            "Curves of 32 pixels",
            """\
DLR, DSS and a model that sees the patch of 9 x 9 pixels around each pixel, and the
masks that DLR and the last predict for the first test images. The majority class has
0.32. Drawn by `python -m experiments.dlr.figures.segmentation`.
""",
            "dlr/pathfinder_segmentation:pixels=32,{row}{column}size=small",
            rows={"macro-F1 on Pathfinder-Segmentation, 32 pixels": ""},
            columns={"DLR": "", "DSS": "model=dss,", "patch": "model=patch,"},
            pictures={
                "Images of 32 pixels, target and masks predicted by DLR and patches": (
                    "dlr/segmentation_32.png"
                ),
            },
        ),
        Benchmark(
            "Kernels of a single tap by DLR-prod",
            """\
With coarse and fine phases (`phases=coarse_fine`) and weights in closed form, the
kernel of DLR-prod is a shift by 7/8 of the length. `distance` is the sum of the squared
differences from a tap of 1 in float32; `kernel` is one kernel, `step` a training step
on Shift with 32 channels and a batch of 4; memory is that of temporary arrays and
results. Measured by `python -m benchmarks --suite=long_shift` on {machine}; other
processes on the machine add to the seconds.
""",
            "long_shift.json",
            {
                "steps": lambda row: f"{row['length']:,}",
                "states": lambda row: f"{row['states']:,}",
                "distance": lambda row: f"{row['left']:.1e}",
                "kernel, s": lambda row: f"{row['kernel_s']:.3f}",
                "kernel, MB": lambda row: f"{row['kernel_bytes'] / 1e6:,.1f}",
                "step, s": lambda row: f"{row['step_s']:.1f}",
                "step, MB": lambda row: f"{row['step_bytes'] / 1e6:,.0f}",
            },
        ),
    ),
)
"""What the paper has results of, and what is shown beside them."""
