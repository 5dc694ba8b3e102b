"""A small program in a process of its own: its config, its log and its errors."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.cli.test_config_file import EXPERIMENT

SHIFT = "--config=shift.py"


@pytest.fixture
def program(tmp_path):
    """Runs a small entry point in a process of its own."""
    (tmp_path / "shift.py").write_text(textwrap.dedent(EXPERIMENT))
    root = Path(__file__).parents[2]
    (tmp_path / "program.py").write_text(
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
            cwd=tmp_path,
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
def test_traceback_of_an_error_is_shown_if_it_is_asked_for(program):
    done = program(SHIFT, "--config.model.d_model=0", "--traceback")
    assert "Traceback" in done.stderr and "no width" in done.stderr


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
