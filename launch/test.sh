#!/usr/bin/env bash
# Sets up as demo.sh does and runs every check: format, lint, types, imports, tests.
# Without an option the fast tier of the tests (minutes); --full adds each method,
# lengths, dtypes, devices and programs; --nightly runs everything. Other arguments go
# to pytest. The tiers are described in tests/conftest.py.
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

# The tests start many processes that import the same packages: their bytecode is kept
# in the environment, even where Python is told to write none beside the sources.
unset PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX=$VIRTUAL_ENV/bytecode

ruff format --check .
ruff check .
lint-imports
# Beside the tests: it takes one core for half a minute.
pyright --pythonpath "$(command -v python)" >"$VENV/pyright.log" &
types=$!
status=0
pytest --numprocesses=auto --maxprocesses=4 --dist=loadfile "$@" || status=$?
wait "$types" || { cat "$VENV/pyright.log"; exit 1; }
exit "$status"
