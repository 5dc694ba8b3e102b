#!/usr/bin/env bash
# Builds the pages of docs/ into docs/_build/html, running all their code; a warning is
# an error. --quick leaves the tutorials out, which train for minutes; --serve shows the
# pages at http://localhost:8000. Other arguments go to sphinx-build.
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

serve=
options=()
for argument in "$@"; do
  case $argument in
    --quick) options+=(--tag quick) ;;
    --serve) serve=yes ;;
    *) options+=("$argument") ;;
  esac
done
sphinx-build --builder html --fail-on-warning --keep-going ${options[@]+"${options[@]}"} \
  docs docs/_build/html
if [[ -n $serve ]]; then
  exec python -m http.server --directory docs/_build/html 8000
fi
