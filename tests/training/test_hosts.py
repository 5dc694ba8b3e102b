"""Decisions of the first process, and what starts several."""

import jax
import numpy as np
import pytest

from ssm_jax.cli.processes import cluster_of
from ssm_jax.training import hosts
from tests.bad_inputs import refuses

SLURM = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_NODELIST": "a[1-2]",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_NTASKS": "2",
}


def test_one_process_decides_alone():
    called = []
    hosts.on_first(lambda: called.append(1))
    assert called == [1] and hosts.broadcast_from_first(3) == 3 and hosts.is_first()
    with pytest.raises(OSError, match="no disk"):
        hosts.on_first(lambda: (_ for _ in ()).throw(OSError("no disk")))


def test_error_of_a_computation_of_several_processes_is_that_of_a_lost_one(monkeypatch):
    error = jax.errors.JaxRuntimeError
    with pytest.raises(error, match="gloo"), hosts.name_lost_processes():
        raise error("gloo")
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    lost = pytest.raises(ConnectionError, match="all 2 processes .* gloo; start all")
    with lost, hosts.name_lost_processes():
        raise error("gloo")
    with pytest.raises(error, match="RESOURCE"), hosts.name_lost_processes():
        raise error("RESOURCE_EXHAUSTED: memory")


@pytest.mark.parametrize("others", [(), (1,), (0, 2)])
def test_processes_that_read_other_data_are_named(monkeypatch, others):
    mine = {"files": 1, "bytes": 3, "modified": "today", "sha256": "00000001ff"}

    def allgather(value):
        values = np.repeat(np.asarray(value), 3)
        values[[*others]] += 1
        return values[:, None]

    monkeypatch.setattr(hosts.multihost_utils, "process_allgather", allgather)
    hosts.check_same_data(mine)  # One process.
    monkeypatch.setattr(jax, "process_count", lambda: 3)
    for found in (mine, None):
        if not others:
            hosts.check_same_data(found)
            continue
        # Those that differ from process 0.
        named = ", ".join(str(i) for i in range(3) if (i in others) != (0 in others))
        with refuses("task", f"in {named}, and", rule="in every process"):
            hosts.check_same_data(found)


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({}, None),
        (SLURM, "Slurm"),
        ({**SLURM, "SLURM_NTASKS": "1"}, None),
        ({"SLURM_NTASKS": "2", "SLURM_JOB_ID": "7"}, None),  # not started by srun
        ({"OMPI_COMM_WORLD_SIZE": "2"}, "Open MPI"),
        ({"OMPI_COMM_WORLD_SIZE": "1"}, None),
    ],
)
def test_clusters_are_known_by_their_variables(environ, name):
    assert cluster_of(environ) == name
