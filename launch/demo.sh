#!/usr/bin/env bash
# The newcomer's first five minutes: sets up, trains DLR on Shift and on handwritten
# digits, evaluates both from their work folders, prints a table and draws pictures.
# Stopped and started again, it goes on where it was. RUNS is the folder of the runs.
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

RUNS=${RUNS:-runs}
python -m launch.train --config=experiments/dlr/shift.py:size=demo --workdir="$RUNS/shift"
python -m launch.train --config=experiments/dlr/digits.py --workdir="$RUNS/digits"
python -m launch.evaluate --workdir="$RUNS/shift"
python -m launch.evaluate --workdir="$RUNS/digits"
python -m launch.report --workdirs="$RUNS/shift,$RUNS/digits"
