"""Files that describe the package agree with pyproject.toml and with each other."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import yaml

import allneg
from allneg.cli.explore import explore_command

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_every_extra_that_a_message_names_exists() -> None:
    source = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    pattern = r"allneg\[(\w+)\]|\bextra\(\"(\w+)\"|\bneed\(\s*\"[\w.]+\", \"(\w+)\""
    named = {name for names in re.findall(pattern, source) for name in names if name}
    assert len(named) > 6
    assert sorted(named - EXTRAS.keys()) == []


def test_the_extra_all_has_every_other_one() -> None:
    (everything,) = EXTRAS["all"]
    assert everything == f"allneg[{','.join(sorted(EXTRAS.keys() - {'all'}))}]"


def test_the_conda_recipe_has_the_dependencies_of_the_package() -> None:
    text = (ROOT / "conda" / "meta.yaml").read_text()
    _, _, run = text.partition("  run:\n")
    lines = re.findall(r"^    - (.*)", run.partition("\ntest:")[0], re.MULTILINE)
    expected = [f"python {PROJECT['requires-python']}"]
    expected += [re.sub("([>=])", r" \1", line, count=1) for line in PROJECT["dependencies"]]
    assert [line.replace("pytorch", "torch") for line in lines] == expected
    assert f'version = "{allneg.__version__}"' in text


def test_the_image_has_what_the_wheel_needs_and_serves_the_packaged_run() -> None:
    ignored, *kept = (ROOT / ".dockerignore").read_text().split()
    needed = {PROJECT["readme"], *PROJECT["license-files"], "pyproject.toml", "src"}
    assert (ignored, {name.removeprefix("!") for name in kept}) == ("*", needed)
    lines = dict(line.split(" ", 1) for line in (ROOT / "Dockerfile").read_text().splitlines()
                 if line.startswith(("ENTRYPOINT", "CMD")))  # fmt: skip
    program, command, *words = json.loads(lines["ENTRYPOINT"]) + json.loads(lines["CMD"])
    assert (program, command) == ("allneg", "explore")
    found = explore_command.make_context(command, words).params
    assert found["host"] == "0.0.0.0"
    assert [str(run) for run in found["runs"]] == ["countries-demo"]


def test_the_citation_has_the_version() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["version"] == allneg.__version__
    assert cited["license"] == PROJECT["license"]
    assert cited["repository-code"] == PROJECT["urls"]["Source"]


def test_workflows_test_the_pythons_of_the_package_and_pin_torch_once() -> None:
    pythons = [text[-4:] for text in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", text)]
    test = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())
    assert test["jobs"]["test"]["strategy"]["matrix"]["python"] == pythons
    (torch,) = re.findall("^torch==.*", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    assert torch in (ROOT / "Dockerfile").read_text().split()


def test_targets_that_workflows_make_exist() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for path in WORKFLOWS:
        assert yaml.safe_load(path.read_text())["jobs"]
        for words in re.findall(r"- run: make (.*)", path.read_text()):
            assert set(words.split()) <= targets, path.name
