"""Scripts that start runs on clusters, as far as they run on one machine."""

import json
import os
import random
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.training.processes import ROOT, environment, write_experiment

pytestmark = pytest.mark.full

SCRIPTS = [
    path
    for folder in (".ci", "examples", "launch", "tests")
    for path in ROOT.glob(f"{folder}/**/*")
    if path.is_file() and path.read_bytes()[:30].startswith(b"#!/usr/bin/env bash")
]
TPU = {"NAME": "a", "ZONE": "z", "BUCKET": "gs://b", "DRY_RUN": "1"}


def bash(*arguments, check=True, **env):
    """Runs bash in the project with more variables."""
    return subprocess.run(
        ["bash", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=check,
    )


def write_program(folder: Path, name: str, text: str) -> None:
    """Writes a program that stands in for one of a cluster."""
    (folder / name).write_text(f"#!/usr/bin/env bash\n{text}\n")
    (folder / name).chmod(0o755)


def test_scripts_are_correct_bash():
    assert {path.name for path in SCRIPTS} >= {"run", "srun", "train.sbatch", "tpu.sh"}
    bash("-n", *SCRIPTS)
    options = ["--external-sources", "--source-path=SCRIPTDIR"]
    process = subprocess.run(["shellcheck", *options, *SCRIPTS], capture_output=True)
    assert process.returncode == 0, process.stdout.decode()


@pytest.mark.parametrize(("status", "requeued"), [(0, ""), (2, ""), (143, "requeue 7")])
def test_job_that_was_told_to_end_is_queued_again(tmp_path, status, requeued):
    write_program(tmp_path, "srun", f'echo "$@"; exit {status}')
    write_program(tmp_path, "scontrol", 'echo "$@"')
    job = bash(
        "launch/slurm/train.sbatch",
        "--config=a.py",
        "--workdir=b",
        check=False,
        PATH=f"{tmp_path}:{os.environ['PATH']}",
        PYTHON="python",
        SLURM_JOB_ID="7",
    )
    assert job.returncode == status
    command, *requests = job.stdout.splitlines()
    assert command.endswith("python -m launch.train --config=a.py --workdir=b")
    assert "".join(requests) == requeued


@pytest.mark.nightly
def test_two_tasks_of_slurm_train_one_run(tmp_path):
    file, run = tmp_path / "experiment.py", tmp_path / "run"
    write_experiment(file, "digits", {}, {})
    env = environment(devices=4)
    env["PATH"] = f"{Path(__file__).parent}:{env['PATH']}"
    # The port of the first process is one of 4,096, by the number of the job.
    env["SLURM_JOB_ID"] = str(random.randrange(4096))
    bash("launch/slurm/train.sbatch", f"--config={file}", f"--workdir={run}", **env)
    record = json.loads((run / "run.json").read_text())
    assert record["processes"] == 2 and record["n_devices"] == 8
    lines = (run / "metrics.jsonl").read_text().splitlines()
    steps = [json.loads(line)["step"] for line in lines]
    assert steps == sorted(set(steps)) and steps[-1] == 7


def test_tpu_commands():
    """The commands that would be run, as the first words and what they must have."""
    script = "launch/tpu_vm/tpu.sh"
    create = bash(script, "create", SPOT="1", **TPU).stdout
    assert create.startswith("gcloud compute tpus tpu-vm create a --zone=z")
    assert "--spot" in create
    run = bash(script, "run", "--config=a b.py", **TPU).stdout
    assert "--worker=all" in run and "launch.train" in run
    setup = bash(script, "setup", **TPU).stdout.splitlines()
    assert [line.split()[0] for line in setup] == ["git", "gcloud", "gcloud", "gcloud"]
    delete = bash(script, "delete", **TPU).stdout
    assert delete.split()[:5] == ["gcloud", "compute", "tpus", "tpu-vm", "delete"]
    unknown = bash(script, "start", check=False, **TPU)
    assert unknown.returncode == 2 and "got start" in unknown.stderr


@pytest.mark.parametrize("name", ["gpu", "tpu"])
def test_job_set_is_complete(name):
    """What JobSet and JAX need to start all processes, and to save before an end."""
    jobs = yaml.safe_load((ROOT / f"launch/gke/{name}.yaml").read_text())
    assert (jobs["apiVersion"], jobs["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    (job,) = jobs["spec"]["replicatedJobs"]
    job_spec = job["template"]["spec"]
    assert job_spec["completionMode"] == "Indexed"
    assert job_spec["completions"] == job_spec["parallelism"] > 1
    pod = job_spec["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] >= 60
    (container,) = pod["containers"]
    assert container["args"][0] == "train"
    claims = {volume["name"] for volume in pod["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == claims
    if name == "gpu":
        env = {variable["name"]: variable for variable in container["env"]}
        first = (
            f"{jobs['metadata']['name']}-{job['name']}-0-0.{jobs['metadata']['name']}"
        )
        assert env["JAX_COORDINATOR_ADDRESS"]["value"].split(":")[0] == first
        assert int(env["JAX_NUM_PROCESSES"]["value"]) == job_spec["completions"]
        assert "job-completion-index" in str(env["JAX_PROCESS_ID"]["valueFrom"])


# Of the models of jobset.x-k8s.io/v1alpha2, batch/v1 and v1: the fields in use, with
# their types; a list of one element is a list, and the keys of a map are any strings.
METADATA = {"name": str}
CONTAINER = {
    "name": str,
    "image": str,
    "args": [str],
    "env": [
        {
            "name": str,
            "value": str,
            "valueFrom": {"fieldRef": {"fieldPath": str}},
        }
    ],
    "ports": [{"containerPort": int}],
    "resources": {"limits": {str: int}},
    "volumeMounts": [{"name": str, "mountPath": str}],
}
POD = {
    "restartPolicy": str,
    "terminationGracePeriodSeconds": int,
    "nodeSelector": {str: str},
    "containers": [CONTAINER],
    "volumes": [
        {
            "name": str,
            "persistentVolumeClaim": {"claimName": str},
            "emptyDir": {"medium": str},
        }
    ],
}
JOB = {
    "completions": int,
    "parallelism": int,
    "completionMode": str,
    "backoffLimit": int,
    "template": {"spec": POD},
}
JOB_SET = {
    "apiVersion": str,
    "kind": str,
    "metadata": METADATA,
    "spec": {
        "failurePolicy": {"maxRestarts": int},
        "replicatedJobs": [{"name": str, "replicas": int, "template": {"spec": JOB}}],
    },
}


def differences(value, schema, path=""):
    """Fields that a schema does not have, or not of this type."""
    if isinstance(schema, type):
        return [] if type(value) is schema else [f"{path}: {value!r}"]
    if type(value) is not type(schema):
        return [f"{path}: {value!r}"]
    if isinstance(schema, list):
        return [d for item in value for d in differences(item, schema[0], f"{path}[]")]
    messages = []
    for key, item in value.items():
        if (item_schema := schema.get(key, schema.get(str))) is None:
            messages.append(f"{path}.{key}: no such field")
        else:
            messages += differences(item, item_schema, f"{path}.{key}")
    return messages


@pytest.mark.parametrize("name", ["gpu", "tpu"])
def test_job_set_has_the_fields_of_kubernetes(name):
    jobs = yaml.safe_load((ROOT / f"launch/gke/{name}.yaml").read_text())
    assert differences(jobs, JOB_SET) == []
    job = jobs["spec"]["replicatedJobs"][0]["template"]["spec"]
    job["completions"], job["completion"] = "2", 2
    path = ".spec.replicatedJobs[].template.spec."
    wrong = [f"{path}completions: '2'", f"{path}completion: no such field"]
    assert differences(jobs, JOB_SET) == wrong


def test_image_installs_the_project():
    text = (ROOT / "launch/docker/Dockerfile").read_text()
    sources = [line.split()[1] for line in text.splitlines() if line.startswith("COPY")]
    assert sources == ["requirements.lock", "."]
    assert 'ENTRYPOINT ["ssm-jax"]' in text and "\nUSER user" in text
