#!/usr/bin/env bash
# Sets up as demo.sh does and runs every check: format, lint, types, imports, tests.
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

ruff format --check .
ruff check .
pyright --pythonpath "$(command -v python)"
lint-imports
pytest --numprocesses=auto --maxprocesses=4 --dist=loadfile "$@"
