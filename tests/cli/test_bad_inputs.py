"""Bad inputs of every program end in one line: the flag or field, and its value."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli import programs
from tests.tasks.raw_sets import novels
from tests.tiers import tiered

pytestmark = [
    pytest.mark.full,  # Whole programs.
    # ml_collections loads the experiment by a call that importlib wants replaced.
    pytest.mark.filterwarnings("ignore:.*load_module:DeprecationWarning"),
]

EXPERIMENT = """
    from ml_collections import ConfigDict
    from ssm_jax.config import spec
    from ssm_jax.layers import ChannelMixing, RecurrentLayer
    from ssm_jax.models import Block, SequenceModel, TokenEncoder
    from ssm_jax.recurrences import DLR
    from ssm_jax.tasks import TextFolder
    from ssm_jax.training import Optimizer, TrainConfig

    def get_config(variant=""):
        if variant:
            raise ValueError(f"`variant` must be '', got {variant!r}; there is none.")
        layer = RecurrentLayer(DLR(d_state=4), ChannelMixing())
        encoder = TokenEncoder(d_model=4, vocabulary=257)
        numbers = {"steps": 1, "batch_size": 8, "evaluation_batches": 1}
        return ConfigDict({
            "experiment": "tests/text", "variant": variant, "paper": None,
            "task": spec(TextFolder, data_dir=DATA, length=8),
            "model": spec(
                SequenceModel, encoder=encoder, block=Block(layer), n_layers=1,
                head=None,
            ),
            "optimizer": spec(Optimizer, learning_rate=1e-2),
            "training": spec(TrainConfig, **numbers),
        })
"""

BROKEN = {
    "syntax": "def get_config(:\n",
    "nul": "x = 1\n\0\n",
    "import": "import no_such_module\n",
    "raise": "x = 1\nraise RuntimeError('of mine')\n",
    "exit": "import sys\nsys.exit('done')\n",
    "bug": "def get_config():\n    return {}['key']\n",
    "nothing": "x = 1\n",
    "number": "get_config = 3\n",
    "none": "def get_config():\n    pass\n",
    "list": "def get_config():\n    return [1]\n",
    "needs": "def get_config(variant):\n    return None\n",
    "takes_none": "from ml_collections import ConfigDict\nget_config = lambda: None\n",
    "empty": "from ml_collections import ConfigDict\nget_config = ConfigDict\n",
}


class Bad(NamedTuple):
    """A command line that must be refused.

    Attributes:
      program: The program.
      arguments: Its flags; ``RUN`` is the folder of a run, ``TMP`` that of the
        experiments, ``NEW`` one that is not there.
      shown: What the line must show, the name first.
      damage: What is done to the folder of the run before.
    """

    program: str
    arguments: tuple[str, ...]
    shown: tuple[str, ...]
    damage: Callable[[Path], object] | None = None


TRAIN = ("--config=TMP/text.py", "--workdir=NEW")


def _fields(group: str, values: dict[str, tuple[str, ...]]) -> dict[str, Bad]:
    """Overrides of fields, which must be refused by their names and values."""
    rows = {}
    for field, bad in values.items():
        for value in bad:
            override = f"--config.{group}.{field}={value}"
            name = field.split(".")[-1]
            shown = (name, value.strip("(),") if value != "nan" else "nan")
            rows[f"train {group}.{field}={value}"] = Bad(
                "train", (*TRAIN, override), shown
            )
    return rows


def _file(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda run: (run / name).write_bytes(content)


def _damaged_files(name: str, contents: dict[str, tuple[bytes, str]]) -> dict[str, Bad]:
    """Files of a run that were damaged before it is continued."""
    arguments = ("--config=TMP/text.py", "--workdir=RUN")
    return {
        f"train {name} {what}": Bad(
            "train", arguments, (f"RUN/{name}", shown), _file(name, content)
        )
        for what, (content, shown) in contents.items()
    }


def _flags(program: str, *first: str, **rows: tuple[str, str]) -> dict[str, Bad]:
    """One more flag each: ``flag=value``, and what must be shown beside its name.

    What starts with a name is shown in its place.
    """
    table = {}
    for label, (argument, shown) in rows.items():
        name = argument.lstrip("-").split("=")[0]
        names = () if shown.startswith(("`", "--")) else (name,)
        table[f"{program} {label}"] = Bad(program, (*first, argument), (*names, shown))
    return table


TEMPERATURES = "experiments.fru.figures.temperatures"
GOOD = b'{"step": 1, "train/loss": 1.0}\n'
NUMBERS = ("0", "-1", "nan", "inf")
ROWS = {
    **_fields(
        "optimizer",
        {
            "learning_rate": NUMBERS,
            "b1": ("1.0", "-0.1", "nan"),
            "b2": ("1.0", "1.5", "0.99999999999"),
            "eps": ("0.0", "-1e-08", "1e-50"),
            "weight_decay": ("-0.1", "nan"),
            "clip_norm": ("0", "-1", "(1,)"),
            "warmup_steps": ("-1", "4294967296"),
            "warmup_from": ("-1.0", "inf"),
            "staircase": ("0.0", "1.5"),
            "schedule": ("cosin", "linear"),
            "schedule_steps": ("0", "2.5"),
            "kind": ("adm",),
        },
    ),
    **_fields(
        "training",
        {
            "batch_size": ("7", "4294967296"),
            "seed": ("-1", "4294967296"),
            "evaluation_batches": ("1.5", "True"),
            "parallel": ("pmapp",),
            "initial_state": ("cary",),
            "initial_noise": ("0.1", "-1"),
            "gradient_windows": ("2",),
            "state_penalty": ("-1.0", "nan"),
            "gradient_steps": ("(0,)", "(99,)"),
        },
    ),
    **_fields(
        "model",
        {
            "n_layers": ("0", "-1", "1000000000"),
            "encoder.d_model": ("0", "-1", "10000000000000"),
            "block.layer.recurrence.readout": ("prd",),
            "head": ("3",),
        },
    ),
    **_fields(
        "task",
        {
            "length": ("0", "100000000"),
            "data_dir": ("/nowhere",),
        },
    ),
    "train too wide": Bad(
        "train",
        (*TRAIN, "--config.model.encoder.d_model=1000000"),
        ("`model` must fit into the memory", "parameters of"),
    ),
    **{
        f"train {name}.py": Bad(
            "train",
            (f"--config=TMP/{name}.py{variant}", TRAIN[1]),
            (f"{name}.py", shown),
        )
        for name, variant, shown in (
            ("syntax", "", "line 1: SyntaxError"),
            ("nul", "", "null bytes"),
            ("import", "", "line 1: ModuleNotFoundError"),
            ("raise", "", "line 2: RuntimeError: of mine"),
            ("exit", "", "line 2: SystemExit: done"),
            ("bug", "", "line 2: KeyError: 'key'"),
            ("nothing", "", "must define `get_config(variant)`, got none"),
            ("number", "", "must define `get_config(variant)`, got int"),
            ("none", "", "must return a ConfigDict, got None"),
            ("list", "", "must return a ConfigDict, got a list"),
            ("needs", "", "must name a variant: its `get_config` needs one, got none"),
            ("takes_none", ":a", "must name no variant: its `get_config` takes none"),
            ("empty", "", "must hold task, model, optimizer, training, each a spec"),
            ("absent", "", "`--config` must be a Python file"),
        )
    },
    "train folder": Bad("train", ("--config=TMP", TRAIN[1]), ("`--config`", "TMP")),
    "train variant": Bad(
        "train", ("--config=TMP/text.py:b", TRAIN[1]), ("`variant` must", "'b'")
    ),
    "train no config": Bad("train", TRAIN[1:], ("`--config` must be given",)),
    "train no workdir": Bad("train", TRAIN[:1], ("--workdir", "None")),
    "train empty workdir": Bad(
        "train", (TRAIN[0], "--workdir="), ("`workdir` must name a directory, got ''",)
    ),
    "train workdir of a file": Bad(
        "train", (TRAIN[0], "--workdir=TMP/text.py"), ("`workdir`", "file TMP/text.py")
    ),
    "train workdir of others": Bad(
        "train", (TRAIN[0], "--workdir=TMP"), ("`workdir`", "got TMP")
    ),
    "train other config": Bad(
        "train",
        (TRAIN[0], "--workdir=RUN", "--config.training.seed=5"),
        ("`workdir`", "training.seed: 0 -> 5"),
    ),
    **_flags(
        "train",
        *TRAIN,
        field=("--config.model.n_layer=2", "did you mean `model.n_layers`?"),
        flag=("--wrkdir=a", "Did you mean: workdir"),
        word=("word", "'word'"),
        one_step=("--profile_steps=1", "must be two steps, got 1;"),
        word_as_a_step=("--profile_steps=1,b", "must be two steps, got 1,b;"),
        picture=("--picture=TMP/a.png", "without --dry_run"),
    ),
    **_flags(
        "train",
        TRAIN[0],
        "--dry_run",
        picture_of_tokens=("--picture=TMP/a.png", "TextFolder"),
        picture_as_text=("--picture=TMP/a.txt", "TMP/a.txt"),
    ),
    "train data of a task without": Bad(
        "train",
        ("--config=experiments/dlr/digits.py", TRAIN[1], "--data_dir=/data"),
        ("`--data_dir`", "ssm_jax.tasks.images.digits:Digits, got /data"),
    ),
    **_damaged_files(
        "config.json",
        {
            "empty": (b"", "Expecting value"),
            "half": (b'{"model": {', "Expecting"),
            "number": (b"3", "got 3"),
            "list": (b"[]", "got ()"),
            "deep": (b"[" * 200_000, "nested at most 100 deep"),
            "object": (b"{}", "got none for task, model, optimizer, training"),
            "nul": (b"\0\0\0", "Expecting value"),
            "not text": (b"\xff\xfe", "can't decode byte 0xff"),
            "other": (b'{"task": 1, "model": {}}', "got none for task, optimizer"),
        },
    ),
    **_damaged_files(
        "metrics.jsonl",
        {
            "no step": (b'{"train/loss": 1.0}\n', "line 1, got '{\"train/loss"),
            "number": (GOOD + b"3\n", "line 2, got '3'"),
            "list": (b"[]\n" + GOOD, "line 1, got '[]'"),
            "lost newline": (GOOD[:-1] + GOOD + GOOD, "line 1, got"),
            "step nan": (b'{"step": NaN}\n', "line 1, got '{\"step\": NaN}'"),
            "step true": (b'{"step": true}\n', "line 1"),
            "step below 0": (b'{"step": -1}\n', "line 1"),
            "deep": (b"[" * 200_000 + b"\n" + GOOD, "line 1, got '[[["),
            "words": (b'{"step": 1, "train/loss": "low"}\n', "line 1"),
            "nul inside": (b"\0\0\n" + GOOD, "line 1"),
            "not text": (b"\xff\n" + GOOD, "line 1"),
        },
    ),
    **_flags(
        "evaluate",
        no_run=("--workdir=TMP/nowhere", "TMP/nowhere"),
    ),
    **_flags(
        "evaluate",
        "--workdir=RUN",
        predictions=("--predictions=TMP/a.csv", ".npz"),
        predictions_nowhere=("--predictions=TMP/no/a.npz", "mkdir -p TMP/no"),
    ),
    "evaluate predictions of train": Bad(
        "evaluate",
        ("--workdir=RUN", "--predictions=TMP/a.npz", "--split=train"),
        ("`split`", "got train"),
    ),
    "evaluate predictions by length": Bad(
        "evaluate",
        ("--workdir=RUN", "--predictions=TMP/a.npz", "--mode=length_extension"),
        ("`--predictions`", "TMP/a.npz"),
    ),
    "evaluate no workdir": Bad("evaluate", (), ("--workdir", "None")),
    **_flags(
        "evaluate",
        "--workdir=RUN",
        which=("--checkpoint=bset", "'bset'"),
        superscript=("--checkpoint=²", "'²'"),
        split=("--split=tst", "tst"),
        mode=("--mode=length", "length"),
        max_tokens=("--max_tokens=0", "0"),
        data=("--data_dir=/nowhere", "/nowhere"),
    ),
    "evaluate step": Bad(
        "evaluate", ("--workdir=RUN", "--checkpoint=400"), ("400", "RUN/checkpoints")
    ),
    "evaluate config": Bad(
        "evaluate",
        ("--workdir=RUN",),
        ("RUN/config.json", "got none for task"),
        _file("config.json", b"{}"),
    ),
    **_flags(
        "evaluate",
        "--workdir=RUN",
        "--mode=length_extension",
        no_length=("--lengths=", "''"),
        words=("--lengths=a,b", "'a,b'"),
        zero=("--lengths=0", "'0'"),
        below=("--lengths=-4", "'-4'"),
        half=("--lengths=2.5", "'2.5'"),
        hole=("--lengths=4,,8", "'4,,8'"),
        power=("--lengths=²", "'²'"),
        odd=("--lengths=4,6", "[4, 6]"),
        long=("--lengths=1000000000", "1000000000"),
    ),
    **_flags(
        "generate",
        "--workdir=RUN",
        nan=("--temperature=nan", "nan"),
        cold=("--temperature=-1", "-1.0"),
        hot=("--temperature=inf", "inf"),
        few=("--top_k=0", "0"),
        k=("--top_k=1.5", "1.5"),
        nucleus=("--top_p=0", "0.0"),
        great=("--top_p=2", "2.0"),
        nucleus_nan=("--top_p=nan", "nan"),
        tokens=("--n_tokens=0", "0"),
        seed=("--seed=-1", "-1"),
        seed_32=("--seed=4294967296", "4294967296"),
        unsaved=("--save_state=TMP/nowhere/state", "TMP/nowhere/state"),
        saved_in_folder=("--save_state=TMP", "TMP"),
    ),
    "generate no state": Bad(
        "generate", ("--workdir=RUN", "--load_state=TMP/gone"), ("TMP/gone",)
    ),
    "generate no such file": Bad(
        "generate", ("--workdir=RUN", "--load_state=TMP/text.py"), ("TMP/text.py",)
    ),
    "generate both": Bad(
        "generate",
        ("--workdir=RUN", "--load_state=TMP/text.py", "--prompt=It"),
        ("`--prompt`", "['It']"),
    ),
    **_flags(
        "prepare",
        nothing=("--data_dir=TMP", "--dataset"),
        flag=("--dataset", "Missing value for flag --dataset"),
    ),
    "prepare unknown": Bad(
        "prepare", ("--dataset=mnits", "--data_dir=TMP"), ("`--dataset`", "mnits")
    ),
    "prepare no files": Bad(
        "prepare",
        ("--dataset=wikitext103", "--data_dir=TMP"),
        ("`--manual_dir`", "got None"),
    ),
    "prepare missing files": Bad(
        "prepare",
        ("--dataset=mnist", "--data_dir=TMP", "--manual_dir=TMP/nowhere"),
        ("`--manual_dir`", "train-images"),
    ),
    **_flags(
        "report",
        nothing=("--nofigures", "`--workdirs` must name a run, got none"),
        no_run=("--workdirs=TMP/nowhere", "`workdir` must hold a run, got TMP/nowhere"),
        hole=("--workdirs=RUN,,RUN", "`workdir` must name a directory, got ''"),
        not_evaluated=("--workdirs=RUN", "without evaluation.json"),
    ),
    "report metrics": Bad(
        "report", ("--workdirs=RUN",), ("RUN/metrics.jsonl", "line 1"),
        _file("metrics.jsonl", b"[]\n"),
    ),
    "report evaluation": Bad(
        "report", ("--workdirs=RUN",), ("RUN/evaluation.json", "JSON object"),
        _file("evaluation.json", b'{"loss":'),
    ),
    "report evaluation list": Bad(
        "report", ("--workdirs=RUN",), ("RUN/evaluation.json", "got list"),
        _file("evaluation.json", b"[]"),
    ),
    "report config": Bad(
        "report", ("--workdirs=RUN",), ("RUN/config.json", "got none for task"),
        _file("config.json", b"{}"),
    ),
    **_flags("benchmark", nothing=("--repeats=1", "--suite")),
    **_flags(
        "benchmark",
        "--suite=recurrence",
        suite=("--suite=recurence", "recurence"),
        lengths=("--lengths=0", "0"),
        repeats=("--repeats=0", "0"),
        output=("--output=TMP/nowhere/a.json", "TMP/nowhere/a.json"),
        folder=("--output=TMP", "a directory"),
        figure=("--figure=a.png", "a.png"),
    ),
    **_flags(
        "benchmark", "--suite=throughput", picture=("--figure=TMP/a.doc", "TMP/a.doc")
    ),
    "figure without data": Bad(TEMPERATURES, (), ("--data", "None")),
    "figure of no file": Bad(TEMPERATURES, ("--data=TMP/gone",), ("TMP/gone",)),
    **_flags(
        "experiments.fru.figures.expressive",
        superfluous=("--data=TMP", "Unknown command line flag"),
        output=("--output=TMP/a.doc", "TMP/a.doc"),
        folder=("--output=TMP", "a directory"),
    ),
    **_flags(
        "experiments.ledger",
        no_run=("--record=TMP/nowhere", "`workdir` must hold a run, got TMP/nowhere"),
        baselines=("--baselines=dlr/shft", "got dlr/shft"),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with experiments, texts and, in ``run``, a run on them."""
    folder = tmp_path_factory.mktemp("programs")
    data = folder / "novels"
    data.mkdir()
    novels(data, 12)
    text = f"DATA = {str(data)!r}\n" + textwrap.dedent(EXPERIMENT)
    (folder / "text.py").write_text(text)
    for name, content in BROKEN.items():
        (folder / f"{name}.py").write_text(content)
    arguments = (f"--config={folder}/text.py", f"--workdir={folder}/run")
    with pytest.MonkeyPatch.context() as patch:
        assert programs.run(patch, "train", *arguments) in (0, None)
    return folder


@pytest.fixture
def folder(trained, tmp_path):
    """The same for one test."""
    return Path(shutil.copytree(trained, tmp_path / "copy", symlinks=True))


def check_refusal(folder, bad, code, err):
    """Checks what a program has told, in its last line."""
    assert code == 2, err
    lines = err.splitlines()
    (line,) = [line for line in lines if "error: " in line]
    assert line == lines[-1] and line.startswith("error: ")
    assert "Traceback" not in err
    for shown in bad.shown:
        expected = shown.replace("RUN", f"{folder}/run").replace("TMP", str(folder))
        assert expected in line


def arguments_in(folder, bad):
    run = f"{folder}/run"
    return [
        argument.replace("RUN", run).replace("TMP", str(folder))
        for argument in bad.arguments
    ]


@pytest.mark.parametrize("bad", ROWS.values(), ids=ROWS.keys())
def test_bad_input_is_one_line(trained, bad, request, monkeypatch, tmp_path, capsys):
    # What is read may be shared, what is damaged may not.
    is_damaged = bad.damage is not None
    folder = request.getfixturevalue("folder") if is_damaged else trained
    if bad.damage is not None:
        bad.damage(folder / "run")
    before = _contents(folder)
    new = str(tmp_path / "new")
    words = (word.replace("NEW", new) for word in arguments_in(folder, bad))
    code = programs.run(monkeypatch, bad.program, *words)
    check_refusal(folder, bad, code, capsys.readouterr().err)
    # Nothing was lost, and nothing begun.
    assert _contents(folder) == before and not os.path.exists(new)


def _contents(folder):
    files = (path for path in folder.rglob("*") if "__pycache__" not in path.parts)
    return {path: path.read_bytes() for path in files if path.is_file()}


def test_metrics_that_are_lost_come_back_from_the_checkpoint(
    folder, monkeypatch, caplog
):
    metrics = folder / "run" / "metrics.jsonl"
    whole = metrics.read_bytes()
    metrics.write_bytes(whole[: len(whole) // 2])
    arguments = (f"--config={folder}/text.py", f"--workdir={folder}/run")
    assert programs.run(monkeypatch, "train", *arguments) in (0, None)
    assert metrics.read_bytes() == whole
    assert "has lost the metrics" in caplog.text


def test_prompt_may_be_any_bytes_where_bytes_are_read(
    trained, monkeypatch, capfdbinary
):
    prompt = os.fsdecode(b"caf\xe9 \xff")
    arguments = (f"--workdir={trained}/run", f"--prompt={prompt}", "--n_tokens=2")
    assert programs.run(monkeypatch, "generate", *arguments) in (0, None)
    assert capfdbinary.readouterr().out.startswith(b"caf\xe9 \xff")


def launch(program, *arguments):
    return subprocess.Popen(
        [sys.executable, "-m", f"launch.{program}", *arguments],
        cwd=programs.ROOT,
        env=os.environ | {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    "name",
    tiered(["train raise.py", "train metrics.jsonl list", "generate nan"], full=1),
)
def test_process_tells_one_line(folder, name):
    bad = ROWS[name]
    if bad.damage is not None:
        bad.damage(folder / "run")
    process = launch(bad.program, *arguments_in(folder, bad))
    out, err = process.communicate(timeout=120)
    assert out == ""
    check_refusal(folder, bad, process.returncode, err)
    if "metrics" not in name:  # that one has told the size of the model before
        assert len(err.splitlines()) == 1


def test_interrupt_of_the_imports_is_one_line(trained):
    process = launch("train", f"--config={trained}/text.py", "--workdir=/nowhere")
    # The first library of the imports that is loaded into its memory.
    maps, end = Path(f"/proc/{process.pid}/maps"), time.monotonic() + 60
    while "numpy" not in maps.read_text() and time.monotonic() < end:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == "interrupted; the same command continues\n"
