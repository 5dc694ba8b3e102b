"""The config of a command line: its variant, its overrides, and mistakes."""

import sys
import textwrap

import pytest
from absl import flags

from ssm_jax.cli import app, config_file
from ssm_jax.cli.errors import one_line_errors
from ssm_jax.config import build, flatten
from tests.bad_inputs import refuses

# ml_collections loads the experiment by a call that importlib wants replaced.
pytestmark = pytest.mark.filterwarnings("ignore:.*load_module:DeprecationWarning")

EXPERIMENT = """
    from ml_collections import ConfigDict, FieldReference

    def get_config(variant=""):
        if variant not in ("", "small"):
            raise ValueError(f"`variant` must be '' or 'small', got {variant!r}.")
        model = ConfigDict({"d_model": 4 if variant else 8, "rate": 0.5})
        model.d_state = FieldReference(None, field_type=object)
        return ConfigDict({
            "model": model,
            "task": ConfigDict({"length": 16, "betas": (0.9, 0.99), "shuffle": True}),
            "blocks": (ConfigDict({"width": 1}),),
        })
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with two experiments in it."""
    paper = tmp_path / "experiments" / "paper"
    paper.mkdir(parents=True)
    (paper / "shift.py").write_text(textwrap.dedent(EXPERIMENT))
    (paper / "nothing.py").write_text("get_config = dict\n")
    (paper / "empty.py").write_text("")
    (paper / "broken.py").write_text("def get_config():\n    return {}['bug']\n")
    (paper / "mistyped.py").write_text("def get_config():\n    return 1 + 'bug'\n")
    (paper / "classes.py").write_text(textwrap.dedent(CLASSES))
    (paper / "shared.py").write_text(textwrap.dedent(SHARED))
    monkeypatch.chdir(tmp_path)
    # The name under which ml_collections loads every file, into what the last one left.
    monkeypatch.delitem(sys.modules, "config_config", raising=False)
    return tmp_path


CLASSES = """
    from ml_collections import ConfigDict
    from ssm_jax.config import spec
    from ssm_jax.tasks.base import TaskSpec

    def get_config(variant=""):
        return ConfigDict({"task": spec(
            TaskSpec, length=16, inputs="vector", d_input=1, targets="regression",
            d_output=1, l_output=None,
        )})
"""


SHARED = """
    from ml_collections import ConfigDict

    def get_config(variant=""):
        config = ConfigDict({"a": 1, "b": 1})
        config.b = config.get_ref("a")
        return config
"""


SHIFT = "--config=experiments/paper/shift.py"


@pytest.fixture
def parse(folder, monkeypatch):
    def parse_line(*arguments):
        argv = ["program", *arguments]
        # Where ml_collections looks for the overrides.
        monkeypatch.setattr(sys, "argv", argv)
        values = flags.FlagValues()
        config = config_file.define_config(values)
        flags.DEFINE_string("workdir", None, "", flag_values=values)
        assert app.parse(argv, values) == ["program"]
        return config.value

    return parse_line


def test_variant_chooses_the_config(parse):
    assert parse(SHIFT).model.d_model == 8
    assert parse(SHIFT + ":small").model.d_model == 4


@pytest.mark.parametrize(
    "override, path, value",
    [
        ("--config.model.d_model=64", "model.d_model", 64),
        ("--config.model.rate=1", "model.rate", 1.0),
        ("--config.model.d_state=5", "model.d_state", 5),
        ("--config.model.d_state=(1,2)", "model.d_state", (1, 2)),
        ("--config.model.d_state=None", "model.d_state", None),
        ("--config.task.betas=(0.5,)", "task.betas", (0.5,)),
        ("--noconfig.task.shuffle", "task.shuffle", False),
        ("--config.task.shuffle=false", "task.shuffle", False),
        ("--config.blocks[0].width=3", "blocks[0].width", 3),
    ],
)
def test_override_reaches_the_config(parse, override, path, value):
    assert flatten(parse(SHIFT, override))[path] == value


def test_two_overrides_of_one_value_are_refused(parse):
    """Here a reference was assigned to a field, not given to `spec`."""
    shared = "--config=experiments/paper/shared.py"
    assert parse(shared, "--config.b=2").to_dict() == {"a": 2, "b": 2}
    assert parse(shared, "--config.a=2", "--config.b=2").b == 2
    with refuses("--config.a", 2, rule="a field of its own"):
        parse(shared, "--config.a=2", "--config.b=3")


def test_override_may_follow_its_flag_as_a_word(parse):
    assert parse(*SHIFT.split("="), "--config.model.d_model", "64").model.d_model == 64


def test_field_that_is_none_is_overridden_and_checked_when_built(parse):
    classes = "--config=experiments/paper/classes.py"
    config = parse(classes, "--config.task.l_output=4", "--config.task.inputs=token")
    task = build(config.task, "config.task")
    assert (task.l_output, task.inputs) == (4, "token")
    config = parse(classes, "--config.task.l_output=four")
    with pytest.raises(
        ValueError, match="`config.task.l_output` must be int | None, got"
    ):
        build(config.task, "config.task")
    config = parse(classes, "--config.task.inputs=tokens")
    with pytest.raises(ValueError, match="got 'tokens'; did you mean `token`?"):
        build(config.task, "config.task")


def test_load_gives_what_the_flag_gives(parse):
    assert config_file.load("experiments/paper/shift.py:small").lock() == parse(
        SHIFT + ":small"
    )


def test_parsed_config_takes_no_new_field(parse):
    with pytest.raises(AttributeError):
        parse(SHIFT).model.new = 1


MISTAKES = {
    "no experiment": ([], "`--config` must be given, as --config=FILE[:variant]."),
    "no value": (["--config"], "`--config` must be given"),
    "missing file": (
        ["--config=experiments/paper/shfit.py"],
        "`--config` must be a Python file, got experiments/paper/shfit.py; "
        "did you mean `experiments/paper/shift.py`?",
    ),
    "missing file with an override": (
        ["--config=paper/shift.py", "--config.model.d_model=1"],
        "did you mean `experiments/paper/shift.py`?",
    ),
    "folder": (["--config=experiments"], "`--config` must be a Python file"),
    "unknown variant": (
        [SHIFT + ":smal"],
        "`variant` must be '' or 'small', got 'smal'.",
    ),
    "file without get_config": (
        ["--config=experiments/paper/empty.py"],
        "`experiments/paper/empty.py` must define `get_config(variant)`",
    ),
    "file that returns no config": (
        ["--config=experiments/paper/nothing.py"],
        "`get_config` of experiments/paper/nothing.py must return a ConfigDict",
    ),
    "unknown field": (
        [SHIFT, "--config.model.d_modle=64"],
        "`--config.model.d_modle` must be a field of experiments/paper/shift.py; "
        "did you mean `model.d_model`?",
    ),
    "unknown field as a word": (
        [*SHIFT.split("="), "--config.model.d_modle", "64"],
        "did you mean `model.d_model`?",
    ),
    "unknown parent": (
        [SHIFT, "--config.modle.d_model=64"],
        "did you mean `model.d_model`?",
    ),
    "forgotten parent": (
        [SHIFT, "--config.length=64"],
        "`--config.length` must be a field of experiments/paper/shift.py; "
        "did you mean `task.length`?",
    ),
    "field of None": (
        [SHIFT, "--config.model.d_state.size=64"],
        "`--config.model.d_state.size` must be a field of",
    ),
    "position beyond the end": (
        [SHIFT, "--config.blocks[1].width=64"],
        "did you mean `blocks[0].width`?",
    ),
    "path that is none": ([SHIFT, "--config.a+=64"], "`--config.a+` must be a field"),
    "wrong type": (
        [SHIFT, "--config.model.d_model=abc"],
        "flag --config.model.d_model=abc: invalid literal for int()",
    ),
    "number for a spec": ([SHIFT, "--config.model=5"], "--config.model.d_model="),
    "override before the experiment": (
        ["--config.model.d_model=1", SHIFT],
        "Found --config.model.d_model=1 in argv before a value for --config",
    ),
    "unknown flag": (
        [SHIFT, "--wrkdir=runs"],
        "Unknown command line flag 'wrkdir'. Did you mean: workdir ?",
    ),
    "word that is no flag": (
        [SHIFT, "workdir=runs"],
        "every argument must be --FLAG=VALUE, got 'workdir=runs'.",
    ),
}


@pytest.mark.parametrize("arguments, message", MISTAKES.values(), ids=MISTAKES.keys())
def test_mistake_on_the_command_line_is_one_line(parse, capsys, arguments, message):
    with pytest.raises(SystemExit) as caught:
        with one_line_errors():
            parse(*arguments)
    lines = capsys.readouterr().err.splitlines()
    assert caught.value.code == 2
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    assert message in lines[0]


# Both are in line 2 of files named by a relative path.
@pytest.mark.parametrize("file, bug", [("broken", KeyError), ("mistyped", TypeError)])
def test_bug_in_an_experiment_keeps_its_traceback_for_those_who_ask(parse, file, bug):
    with pytest.raises(
        ValueError, match=f"`--config` .*line 2: {bug.__name__}"
    ) as caught:
        with one_line_errors(traceback=True):
            parse(f"--config=experiments/paper/{file}.py")
    assert isinstance(caught.value.__cause__, bug)


@pytest.mark.parametrize("words", [("=name",), ("", "name")])
def test_part_is_set_by_its_fields_and_not_by_a_word(folder, words):
    first, *rest = words
    line = [
        "x",
        "--config=experiments/paper/classes.py",
        f"--config.task{first}",
        *rest,
    ]
    with refuses("--config.task`", "name", rule="by its fields") as refusal:
        config_file.load_with_overrides(line, [])
    assert "--config.task.cls=" in str(refusal.value)
    assert "--config.task.length=" in str(refusal.value)


def test_part_is_another_function_by_its_address(folder):
    line = ["x", "--config=experiments/paper/classes.py", "--config.task.cls=a:b"]
    assert config_file.load_with_overrides(line, []).task.cls == "a:b"
