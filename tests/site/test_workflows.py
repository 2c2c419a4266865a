"""The workflows of a hosted CI, the templates and the hooks of pre-commit fit their schemas, and name what there is."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = [file for file in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if file.name != "config.yml"]
SCHEMAS = {
    "vendor.github-workflows": WORKFLOWS,
    "custom.github-workflows-require-timeout": WORKFLOWS,
    "vendor.github-issue-forms": FORMS,
    "vendor.github-issue-config": [GITHUB / "ISSUE_TEMPLATE" / "config.yml"],
    "vendor.dependabot": [GITHUB / "dependabot.yml"],
}
MAKEFILES = [ROOT / "Makefile", *sorted((ROOT / "make").glob("*.mk"))]


def check(schema: str, files: list[Path]) -> subprocess.CompletedProcess[str]:
    """What check-jsonschema, which has these schemas in its wheel, says of files."""
    command = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        schema,
        *map(str, files),
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def load(file: Path) -> dict[str, Any]:
    """A YAML file. `on` is a word for true in YAML 1.1, which does not matter here."""
    content: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return content


def steps(file: Path) -> Iterator[dict[str, Any]]:
    """Every step of every job of a workflow."""
    for job in load(file)["jobs"].values():
        yield from job["steps"]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_files_fit_their_schema(schema: str) -> None:
    assert SCHEMAS[schema]
    checked = check(schema, SCHEMAS[schema])
    assert checked.returncode == 0, checked.stdout


def test_a_workflow_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    flawed = tmp_path / "lint.yml"
    flawed.write_text((GITHUB / "workflows" / "lint.yml").read_text().replace("runs-on", "run-on"))
    assert check("vendor.github-workflows", [flawed]).returncode != 0


def test_there_is_a_workflow_for_each_task() -> None:
    assert {file.stem for file in WORKFLOWS} == {"docs", "lint", "nightly", "release", "tests"}


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_actions_are_pinned_and_have_their_version_beside_them(file: Path) -> None:
    used = re.findall(r"uses: (.*)", file.read_text(encoding="utf-8"))
    assert used
    assert [one for one in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v[\d.]+", one)] == []


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_a_job_may_no_more_than_it_needs(file: Path) -> None:
    assert load(file)["permissions"] == {"contents": "read"}
    writing = {
        name: {key for key, value in job.get("permissions", {}).items() if value == "write"}
        for name, job in load(file)["jobs"].items()
    }
    allowed = {
        "publish": {"id-token", "pages"},
        "wheels": {"id-token", "attestations"},
        "notes": {"contents"},
    }
    assert {
        name: rights for name, rights in writing.items() if rights - allowed.get(name, set())
    } == {}


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_what_a_workflow_runs_is_there(file: Path) -> None:
    targets = {
        target
        for makefile in MAKEFILES
        for line in re.findall(r"^([a-z][a-z -]*):", makefile.read_text(), re.MULTILINE)
        for target in line.split()
    }
    run = "\n".join(step.get("run", "") for step in steps(file))
    assert set(re.findall(r"\bmake ([a-z][a-z-]*)", run)) <= targets
    for job in load(file)["jobs"].values():
        named = job.get("strategy", {}).get("matrix", {}).get("include", [])
        assert {one["target"] for one in named} <= targets
    for module in re.findall(r"python -m (tests[\w.]*)", run):
        assert (ROOT / module.replace(".", "/") / "__main__.py").exists()


@pytest.mark.parametrize(
    "file", [*FORMS, GITHUB / "PULL_REQUEST_TEMPLATE.md"], ids=lambda file: file.stem
)
def test_templates_ask_for_the_doctors_report(file: Path) -> None:
    assert "flagos doctor --json" in file.read_text(encoding="utf-8")


def test_pre_commit_runs_what_lint_runs() -> None:
    recipe = re.search(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    hooks = [
        hook["entry"]
        .replace(".venv/bin/python", '"$(PY)"')
        .replace(".venv/bin/", '"$(VENV)/bin/')
        .split()
        for repo in load(ROOT / ".pre-commit-config.yaml")["repos"]
        for hook in repo["hooks"]
    ]
    for line in recipe[1].splitlines():
        words = [word for word in line.split() if word not in (".", "$(CXX_SOURCES)")]
        plain = [word.strip('"') for word in words]
        assert plain in [[word.strip('"') for word in hook] for hook in hooks], line
