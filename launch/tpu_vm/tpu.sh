#!/usr/bin/env bash
# Trains on a Cloud TPU slice, with one process per host:
#
#   export NAME=ssm-jax ZONE=us-west4-a TYPE=v5litepod-16 BUCKET=gs://my-bucket
#   bash launch/tpu_vm/tpu.sh create     # SPOT=1: a preemptible one
#   bash launch/tpu_vm/tpu.sh setup      # copies the project, installs it on all hosts
#   bash launch/tpu_vm/tpu.sh run --config=experiments/dlr/atomic.py:task=shift
#   bash launch/tpu_vm/tpu.sh collect runs/shift
#   bash launch/tpu_vm/tpu.sh delete
#
# The bucket is mounted on all hosts at the same path, and the work dir is $RUN (default:
# run) in it. The same `run` continues a run; after a preemption create, setup and run
# again. DRY_RUN=1 prints the commands instead of running them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

NAME=${NAME:?the name of the TPU}
ZONE=${ZONE:?its zone, such as us-west4-a}
TYPE=${TYPE:-v5litepod-8}
VERSION=${VERSION:-v2-alpha-tpuv5-lite}
RUN=${RUN:-run}

call() {
  if [[ -n ${DRY_RUN:-} ]]; then
    printf '%q ' "$@"
    printf '\n'
  else
    "$@"
  fi
}

on_all() {
  call gcloud compute tpus tpu-vm ssh "$NAME" --zone="$ZONE" --worker=all --command="$1"
}

action=${1:?one of create, setup, run, collect, delete}
shift
case $action in
  create)
    call gcloud compute tpus tpu-vm create "$NAME" --zone="$ZONE" \
      --accelerator-type="$TYPE" --version="$VERSION" ${SPOT:+--spot}
    ;;
  setup)
    archive=$(mktemp -d)/ssm_jax.tar.gz
    call git archive --format=tar.gz --output="$archive" HEAD
    call gcloud compute tpus tpu-vm scp "$archive" "$NAME":ssm_jax.tar.gz \
      --zone="$ZONE" --worker=all
    on_all "mkdir -p ssm_jax && tar -xzf ssm_jax.tar.gz -C ssm_jax && python3 -m venv venv \
&& venv/bin/pip install -q './ssm_jax[tpu]'"
    on_all "mkdir -p bucket && (mountpoint -q bucket || gcsfuse --implicit-dirs \
${BUCKET:?a bucket, such as gs://my-bucket} bucket)"
    ;;
  run)
    flags=$(printf '%q ' "$@")
    on_all "cd ssm_jax && ../venv/bin/python -m launch.train --workdir=../bucket/$RUN $flags"
    ;;
  collect)
    call gcloud storage rsync --recursive "${BUCKET:?its bucket}/$RUN" "${1:?a directory}"
    ;;
  delete)
    call gcloud compute tpus tpu-vm delete "$NAME" --zone="$ZONE" --quiet
    ;;
  *)
    echo "error: the action must be create, setup, run, collect or delete, got $action" >&2
    exit 2
    ;;
esac
