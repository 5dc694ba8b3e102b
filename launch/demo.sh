#!/usr/bin/env bash
# A demonstration of about five minutes: trains DLR on Shift and on handwritten digits,
# evaluates both runs, prints a table and draws figures. An interrupted demo continues
# from the last checkpoints when it is started again. RUNS is the parent of work dirs.
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

RUNS=${RUNS:-runs}
python -m launch.train --config=experiments/dlr/atomic.py:task=shift,size=demo \
    --workdir="$RUNS/shift"
python -m launch.train --config=experiments/dlr/digits.py --workdir="$RUNS/digits"
python -m launch.evaluate --workdir="$RUNS/shift"
python -m launch.evaluate --workdir="$RUNS/digits"
python -m launch.report --workdirs="$RUNS/shift,$RUNS/digits"
