"""What the caller of an entry point sees: one line for each of his errors."""

import errno
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from absl import flags

from ssm_jax.cli import app, config_file, main
from ssm_jax.cli.errors import one_line_errors
from ssm_jax.config import build, flatten
from tests.bad_inputs import refuses
from tests.cli import programs

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
    "number for a spec": ([SHIFT, "--config.model=5"], "flag --config.model=5"),
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


class OwnError(ValueError):
    pass


@pytest.mark.parametrize(
    "error, line",
    [
        (ValueError("two\n  lines"), "error: two lines"),
        (OwnError("of a checkpoint"), "error: of a checkpoint"),
        (ValueError(), "error: ValueError"),
        (
            OSError(errno.ENOSPC, "No space left on device", "runs/a"),
            "error: No space left on device: runs/a",
        ),
        (
            PermissionError(errno.EACCES, "Permission denied"),
            "error: Permission denied",
        ),
        (FileNotFoundError("no such run"), "error: no such run"),
    ],
)
def test_error_of_the_caller_is_one_line(capsys, error, line):
    with pytest.raises(SystemExit) as caught:
        with one_line_errors():
            raise error
    assert caught.value.code == 2
    assert capsys.readouterr().err == line + "\n"


def test_interrupt_says_how_to_go_on(capsys):
    with pytest.raises(SystemExit) as caught:
        with one_line_errors():
            raise KeyboardInterrupt
    assert caught.value.code == 130
    assert capsys.readouterr().err == "interrupted; the same command continues\n"


@pytest.mark.parametrize("bug", [TypeError, KeyError, AssertionError, AttributeError])
def test_bug_goes_through(bug):
    with pytest.raises(bug):
        with one_line_errors():
            raise bug


def test_traceback_lets_errors_through():
    with pytest.raises(ValueError):
        with one_line_errors(traceback=True):
            raise ValueError


@pytest.fixture
def program(folder):
    """Runs a small entry point in a process of its own."""
    root = Path(__file__).parents[2]
    (folder / "program.py").write_text(
        textwrap.dedent('''
        """What the program does."""
        import logging as other
        from absl import flags, logging
        from ssm_jax.cli import app, config_file

        def main(argv):
            config = flags.FLAGS.config
            other.getLogger("library").info("of another library")
            logging.warning("width %d", config.model.d_model)
            if config.model.d_model == 0:
                raise ValueError("no width")
            if config.model.d_model == 1:
                raise TypeError("a bug")

        if __name__ == "__main__":
            app.run(main, config_file.define_config)
        ''')
    )

    def run(*arguments):
        return subprocess.run(
            [sys.executable, "program.py", *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(root)},
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run


@pytest.mark.full
def test_program_runs_with_its_config_and_logs_to_stderr(program):
    done = program(SHIFT, "--config.model.d_model=3")
    assert done.returncode == 0, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.endswith(" width 3")
    assert done.stdout == ""
    assert "of another library" in program(SHIFT, "--verbosity=1").stderr


@pytest.mark.full
def test_program_ends_an_error_with_one_line_and_status_2(program):
    done = program(SHIFT, "--config.model.d_model=0")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "error: no width"
    assert "Traceback" not in done.stderr
    assert (
        "Traceback" in program(SHIFT, "--config.model.d_model=0", "--traceback").stderr
    )


@pytest.mark.full
def test_program_shows_the_traceback_of_a_bug(program):
    done = program(SHIFT, "--config.model.d_model=1")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[-1] == "TypeError: a bug"


@pytest.mark.full
def test_program_help_shows_its_docstring_and_lists_its_flags(program):
    shown = program("--help").stdout
    assert "What the program does." in shown
    assert "--config: " in shown
    assert "--[no]traceback: " in shown


def ssm_jax(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["ssm-jax", *words])
    with programs.fresh_flags(), pytest.raises(SystemExit) as caught:
        main.main()
    return caught.value.code


@pytest.mark.parametrize("flag", ["--help", "-h", "help"])
def test_ssm_jax_lists_its_programs(monkeypatch, capsys, flag):
    assert ssm_jax(monkeypatch, flag) == 0
    shown = capsys.readouterr().out
    assert all(f"\n    {name} " in shown for name in main.PROGRAMS)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["trian"], "got 'trian'; did you mean `train`?"),
        (
            [],
            f"got ''; known: {', '.join(main.PROGRAMS)}.",
        ),
        (["--workdir=a"], "got '--workdir=a'; known: train"),
    ],
)
def test_unknown_program_is_one_line(monkeypatch, capsys, words, hint):
    assert ssm_jax(monkeypatch, *words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: `PROGRAM` must be a program, ")
    assert hint in line


@pytest.mark.parametrize("name", main.PROGRAMS)
def test_ssm_jax_runs_each_program_with_its_flags(monkeypatch, capsys, name):
    monkeypatch.setattr(sys.modules["__main__"], "__doc__", "")
    assert ssm_jax(monkeypatch, name, "--wrong_flag=1") == 2
    of_experiment = name in ("train", "compile", "sweep")
    shown = "`--config` must be given" if of_experiment else "wrong_flag"
    assert shown in capsys.readouterr().err


def test_environment_that_is_no_number_is_one_line(monkeypatch, capsys):
    monkeypatch.setenv("JAX_NUM_PROCESSES", "two")
    monkeypatch.setattr(sys.modules["__main__"], "__doc__", "")
    assert ssm_jax(monkeypatch, "train", "--dry_run") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: `JAX_NUM_PROCESSES` must be a number, got 'two'")


@pytest.mark.full
def test_installed_script_is_the_same_program():
    script = "from ssm_jax.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script, "train", "--help"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "Trains an experiment" in done.stdout
    assert "--workdir: " in done.stdout


@pytest.mark.full
@pytest.mark.parametrize("words", ["--help", "report --help"])
def test_reader_of_the_output_may_leave(words):
    script = "from ssm_jax.cli.main import main; main()"
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-c", script, *words.split()]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, timeout=180)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


def test_control_sequences_in_an_error_are_shown(capsys):
    with pytest.raises(SystemExit), one_line_errors():
        raise ValueError("got a\x1b[2J\nb\u202e\udcff é.")
    assert capsys.readouterr().err == "error: got a\\x1b[2J b\\u202e\\udcff é.\n"


@pytest.mark.parametrize("program", main.PROGRAMS)
def test_program_without_a_standard_output_starts(program, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys.modules["__main__"], "__doc__", "")
    assert ssm_jax(monkeypatch, program, "--no_such_flag") == 2
    sys.stdout.close()
    assert capsys.readouterr().err.startswith("error: ")


@pytest.mark.full
@pytest.mark.parametrize("closed", ["<&- >&- 2>&-", ">&-", "2>&-"])
def test_streams_that_are_closed_are_no_files_of_the_program(closed, tmp_path):
    """What a library prints to them goes to the null device, and not into a file."""
    script = (
        "from ssm_jax.cli.startup import open_streams; open_streams(); import os;"
        "file = open('file', 'w'); os.write(1, b'lost'); os.write(2, b'lost');"
        "print('lost'); file.write(str(file.fileno()))"
    )
    command = f"exec '{sys.executable}' -c \"{script}\" {closed}"
    root = {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, env=os.environ | root, timeout=60
    )
    assert done.returncode == 0
    assert int((tmp_path / "file").read_text()) > 2


@pytest.mark.full
def test_config_imports_the_package_that_it_is_in(tmp_path):
    """Without the working directory in `sys.path`, as the installed script runs."""
    root = Path(__file__).parents[2]
    package = tmp_path / "checkout" / "mine" / "paper"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").write_text("")
    (package.parent / "width.py").write_text("WIDTH = 5")
    text = textwrap.dedent(EXPERIMENT).replace("else 8", "else WIDTH")
    (package / "shift.py").write_text("from mine.width import WIDTH\n" + text)
    script = (
        f"import sys; sys.path.insert(0, {str(root)!r}); from ssm_jax.cli import app;"
        "from ssm_jax.cli import config_file;"
        "app.run(lambda argv: print(config_file.flags.FLAGS.config.model.d_model),"
        " config_file.define_config)"
    )
    command = [sys.executable, "-Ic", script, "--config=checkout/mine/paper/shift.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "5\n"), done.stderr
