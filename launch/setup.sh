#!/usr/bin/env bash
# Creates .venv with the exact versions of requirements.lock, once. Sourced by demo.sh
# and test.sh. PYTHON selects the interpreter, VENV the directory.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

PYTHON=${PYTHON:-python3}
VENV=${VENV:-.venv}
version=$("$PYTHON" -c 'import sys; print(sys.version_info >= (3, 11), sys.version.split()[0])')
if [[ $version != True* ]]; then
  echo "error: \`PYTHON\` must be Python 3.11 or later, got ${version#* }; give another: PYTHON=python3.12 bash $0" >&2
  exit 2
fi

# The version is one of the metadata that pip writes when it installs the package.
wanted=$( (cat requirements.lock pyproject.toml; grep '^__version__' ssm_jax/__init__.py) | cksum)
if [[ ! -f $VENV/ready || $(cat "$VENV/ready") != "$wanted" ]]; then
  echo "setting up $VENV with Python ${version#* }: about 1 GB, a minute or two"
  "$PYTHON" -m venv --clear "$VENV"
  "$VENV/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check \
    -r requirements.lock
  "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check \
    --no-deps --no-build-isolation --editable .
  echo "$wanted" >"$VENV/ready"
fi
# shellcheck source=/dev/null
source "$VENV/bin/activate"

# Large arrays in huge pages of memory, where Linux has them: see docs/performance.md.
export GLIBC_TUNABLES=${GLIBC_TUNABLES-glibc.malloc.hugetlb=1}
