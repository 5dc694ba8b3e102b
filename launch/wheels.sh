#!/usr/bin/env bash
# Installation on machines without a network. With a network, same system and Python:
#
#   bash launch/wheels.sh wheels          # about 300 MB; EXTRA=cuda adds those of CUDA
#
# Then, without one, in a virtual environment:
#
#   pip install --no-index --find-links=wheels ssm_jax    # or "ssm_jax[cuda]"
#
# Data are prepared with a network by `ssm-jax prepare` and copied, too.
set -euo pipefail
wheels=$(realpath -m "${1:?a directory for the wheels}")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PYTHON=${PYTHON:-python3}
"$PYTHON" -m pip download --quiet --disable-pip-version-check \
  --requirement=requirements.lock --dest="$wheels"
"$PYTHON" -m pip wheel --quiet --disable-pip-version-check \
  --constraint=requirements.lock --wheel-dir="$wheels" ".${EXTRA:+[$EXTRA]}"
echo "$(find "$wheels" -name '*.whl' | wc -l) wheels, $(du -sh "$wheels" | cut -f1), in $wheels"
