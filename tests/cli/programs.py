"""Runs programs in this process, each with flags of its own."""

import contextlib
import logging
import runpy
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from absl import flags, logging as absl_logging

ROOT = Path(__file__).parents[2]
OURS = ("ssm_jax.", "benchmarks.", "experiments.", str(ROOT))


@contextlib.contextmanager
def fresh_flags() -> Iterator[None]:
    """Within the block programs may define flags, which are removed at its end."""
    values, before = flags.FLAGS, _ours()
    modules = {name: values.find_module_defining_flag(name) for name in before}
    for name in before:
        delattr(values, name)
    hook, interrupted = sys.unraisablehook, signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        for name in _ours():
            delattr(values, name)
        for name, flag in before.items():
            values[name] = flag
            values.register_flag_by_module(modules[name], flag)
        sys.unraisablehook = hook
        signal.signal(signal.SIGINT, interrupted)
        logging.root.removeHandler(absl_logging.get_absl_handler())
        sys.modules.pop("config_config", None)  # ml_collections' name of any experiment


def _ours() -> dict[str, flags.Flag]:
    """The flags of our programs, by their names; libraries keep theirs."""
    values = flags.FLAGS
    modules = {name: values.find_module_defining_flag(name) or "" for name in values}
    return {
        name: values[name]
        for name, module in modules.items()
        # ml_collections' flags of the fields of a config seem to be absl's own.
        if module.startswith(("ssm_jax.", "benchmarks.", "experiments.", str(ROOT)))
        or name.startswith("config.")
    }


def run(monkeypatch: pytest.MonkeyPatch, program: str, *arguments: str) -> int | None:
    """Runs ``python -m PROGRAM``, or that of ``launch``; returns its exit status."""
    module = program if "." in program else f"launch.{program}"
    path = str(ROOT / f"{module.replace('.', '/')}.py")
    monkeypatch.setattr(sys, "argv", [path, *arguments])
    monkeypatch.setattr(sys.modules["__main__"], "__doc__", "")
    with fresh_flags(), pytest.raises(SystemExit) as caught:
        runpy.run_path(path, run_name="__main__")
    code = caught.value.code
    assert code is None or isinstance(code, int), code
    return code
