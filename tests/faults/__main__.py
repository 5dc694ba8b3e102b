"""Counts how many faults the tests catch.

Each fault is applied to a copy of the checkout, where pytest stops at the first test
that fails: first of the tests of the faulty package, then of all others::

    python -m tests.faults --draw=20 --seed=0 --tier=fast
    python -m tests.faults --names=fft_wraps_around,best_is_latest --tier=full
    python -m tests.faults --draw=0 --baseline
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from absl import app, flags

from tests.faults.faults import FAULTS, Fault

ROOT = Path(__file__).resolve().parents[2]
# The ignored test applies the faults itself, which fails where one is applied already.
_IGNORED = "--ignore=tests/test_faults.py"
_OPTIONS = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", "-rfE", _IGNORED]
_PATHS = ["ssm_jax", "tests", "README.md"]

_DRAW = flags.DEFINE_integer("draw", 20, "Faults to draw.", lower_bound=0)
_SEED = flags.DEFINE_integer("seed", 0, "Seed of the draw.")
_TIER = flags.DEFINE_enum("tier", "fast", ["fast", "full"], "Tests to run.")
_TIMEOUT = flags.DEFINE_integer("timeout", 600, "Seconds for each fault.")
_NAMES = flags.DEFINE_list("names", [], "Faults to apply instead of drawn ones.")
_BASELINE = flags.DEFINE_bool(
    "baseline", False, "Run all tests of the tier without a fault first."
)


def chosen(names: list[str], draw: int, seed: int) -> list[Fault]:
    """The faults of these names, or as many drawn ones as are asked for."""
    if not names:
        return random.Random(seed).sample(FAULTS, draw)
    by_name = {fault.name: fault for fault in FAULTS}
    if unknown := set(names) - by_name.keys():
        raise app.UsageError(f"--names: no such fault: {', '.join(sorted(unknown))}")
    return [by_name[name] for name in names]


def copy_checkout(folder: Path) -> None:
    """Copies the files that git tracks."""
    command = ["git", "ls-files", "-z"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def first_failure(folder: Path, paths: list[str], timeout: float | None) -> str | None:
    """Runs pytest in a folder.

    Args:
      folder: A copy of the checkout.
      paths: Arguments of pytest that select tests.
      timeout: Seconds; None: as long as it takes.

    Returns:
      The test that failed; None if all passed.

    Raises:
      subprocess.TimeoutExpired: The tests took too long.
      RuntimeError: pytest itself failed.
    """
    tier = ["--full"] if _TIER.value == "full" else []
    # No bytecode: a file that is restored within a second could keep the fault's.
    environment = os.environ | {
        "PYTHONPATH": str(folder),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-m", "pytest", *_OPTIONS, *tier, *paths]
    # A session of its own, so that what the tests started ends with them.
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = process.wait(timeout)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        output.seek(0)
        lines = output.read().splitlines()
    if status in (0, 5):  # 5: none of the tests is of this tier
        return None
    for line in lines:
        if line.startswith(("FAILED ", "ERROR ")):
            return line.split(" - ")[0]
    raise RuntimeError("\n".join([f"pytest ended with {status}", *lines[-30:]]))


def outcome(folder: Path, fault: Fault) -> str | None:
    """The first test that fails with a fault; None if it survives."""
    path = folder / fault.file
    source = path.read_text()
    own = f"tests/{fault.package}"
    deadline = time.monotonic() + _TIMEOUT.value
    path.write_text(fault.applied(source))
    try:
        if failed := first_failure(folder, [own], _TIMEOUT.value):
            return failed
        rest = [*_PATHS, f"--ignore={own}"]
        return first_failure(folder, rest, max(1.0, deadline - time.monotonic()))
    finally:
        path.write_text(source)


def main(argv: list[str]) -> None:
    """Prints a line for each fault, and how many were caught."""
    if len(argv) > 1:
        raise app.UsageError(f"unknown arguments: {' '.join(argv[1:])}")
    faults, caught = chosen(_NAMES.value, _DRAW.value, _SEED.value), 0
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        folder = Path(name)
        copy_checkout(folder)
        if _BASELINE.value:
            failed = first_failure(folder, _PATHS, None)
            if failed:
                sys.exit(f"without a fault: {failed}")
            print("without a fault: all passed", flush=True)
        for fault in faults:
            began = time.monotonic()
            try:
                failed = outcome(folder, fault)
                found = f"caught by {failed}" if failed else "SURVIVED"
                caught += failed is not None
            except subprocess.TimeoutExpired:
                found = "SURVIVED (timeout)"
            seconds = time.monotonic() - began
            print(f"{fault.name} ({seconds:.0f} s): {found}", flush=True)
    print(f"caught {caught} of {len(faults)}")


if __name__ == "__main__":
    app.run(main)
