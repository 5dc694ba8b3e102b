"""Files that programs outside of this repository read: workflows and hooks."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
each_workflow = pytest.mark.parametrize(
    "workflow", WORKFLOWS, ids=[path.stem for path in WORKFLOWS]
)


def steps(workflow):
    jobs = yaml.safe_load(workflow.read_text())["jobs"].values()
    return [step for job in jobs for step in job["steps"]]


@each_workflow
def test_actions_are_pinned_by_commit_with_their_tag(workflow):
    lines = re.findall(r"uses: *(.*)", workflow.read_text())
    assert len(lines) == sum("uses" in step for step in steps(workflow))
    for line in lines:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line


def test_an_action_has_one_version():
    lines = [
        line
        for workflow in WORKFLOWS
        for line in re.findall(r"uses: *(.*)", workflow.read_text())
    ]
    assert len(set(lines)) == len({line.split("@")[0] for line in lines})


@each_workflow
def test_jobs_may_write_nothing_but_what_they_publish(workflow):
    content = yaml.safe_load(workflow.read_text())
    assert content["permissions"] == {"contents": "read"}
    for job in content["jobs"].values():
        assert "timeout-minutes" in job
        granted = job.get("permissions", {})
        if granted:
            # Of an environment, whose rules the owners of the repository set.
            assert "environment" in job
            assert set(granted) <= {"id-token", "pages"}


@each_workflow
def test_scripts_of_workflows_exist(workflow):
    for step in steps(workflow):
        for script in re.findall(
            r"\b(?:bash|source) (launch/\S+)", step.get("run", "")
        ):
            assert (ROOT / script).is_file(), script


def test_hooks_have_the_ruff_of_the_lock_file():
    lock = (ROOT / "requirements.lock").read_text()
    locked = re.search(r"^ruff==\S+", lock, re.M)[0]
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    for hook in hooks[0]["hooks"]:
        assert hook["additional_dependencies"] == [locked], hook["id"]


def test_version_is_one():
    version = re.search(
        r'^__version__ = "(.+)"$', (ROOT / "ssm_jax/__init__.py").read_text(), re.M
    )[1]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == version
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert re.search(r"^## \[(.+)\]", changelog, re.M)[1] == version
