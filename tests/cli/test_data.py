"""`allneg data` for people and for scripts."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from allneg.cli.data import data_command
from allneg.errors import DataError, ResourceError, UsageError


def run(*arguments: str) -> Result:
    return CliRunner().invoke(data_command, list(arguments))


@pytest.fixture
def leaky(tmp_path: Path) -> str:
    """A graph whose test shares a triple with train, in a folder."""
    chain = "".join(f"e{i}\tr{i}\te{i + 1}\ne{i + 1}\tback{i}\te{i}\n" for i in range(12))
    (tmp_path / "train.txt").write_text(chain + "e0\tr0\te1\n")
    (tmp_path / "test.txt").write_text("e0\tr0\te1\ne9\t\x1b[2J\te3\n")
    return str(tmp_path)


@pytest.fixture(autouse=True)
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLNEG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ALLNEG_OFFLINE", "1")
    monkeypatch.delenv("ALLNEG_DATA", raising=False)


def test_list_names_every_known_dataset() -> None:
    output = json.loads(run("list", "--json").stdout)
    assert output["schema_version"] == 1
    assert [dataset["name"] for dataset in output["sets"]] == [
        "countries", "countries-hard", "fb15k", "wn18", "yago3-10", "fb15k-237", "wn18rr",
    ]  # fmt: skip
    by_name = {dataset["name"]: dataset for dataset in output["sets"]}
    assert by_name["countries"]["where"] == "in the package"
    assert by_name["fb15k"]["where"] is None
    assert by_name["fb15k"]["train"] == 483_142
    assert "to be downloaded" in run("list").stdout


def test_get_prints_where_a_dataset_is() -> None:
    assert run("get", "countries").stdout == "countries: in the package\n"
    assert json.loads(run("get", "countries", "--json").stdout)["where"] == "in the package"


@pytest.mark.battery(16)
def test_get_offline_is_an_error() -> None:
    output = run("get", "fb15k")
    assert isinstance(output.exception, DataError)
    assert "ALLNEG_OFFLINE" in str(output.exception)
    assert output.output == ""  # no download, and no message about one


def test_get_suggests_a_close_name() -> None:
    assert "close names: 'wn18rr'" in str(run("get", "wn18r").exception)


def test_check_prints_tables_and_cuts_long_lists(leaky: str) -> None:
    output = run("check", leaky)
    assert output.exit_code == 0
    assert "and 2 more (--json has all)" in output.stdout
    assert "1 duplicate triple in train is removed" in output.stderr


@pytest.mark.battery(7)
def test_control_characters_in_names_are_escaped_on_the_screen(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("a\t\x1b[2J\tb\nb\t\x1b[2J\ta\n")
    output = run("check", str(tmp_path))
    assert "\x1b[2J" not in output.output
    assert "x1b[2J" in output.stdout


@pytest.mark.battery(11)
def test_check_fails_on_overlaps_with_strict(leaky: str) -> None:
    assert run("check", leaky).exit_code == 0
    problem = run("check", leaky, "--strict").exception
    assert isinstance(problem, DataError)
    assert "train and test 1" in str(problem)
    assert run("check", "countries", "--strict").exit_code == 0


def test_check_reads_the_weights_of_a_column(tmp_path: Path) -> None:
    (tmp_path / "facts.csv").write_text("head,relation,tail,trust\na,r,b,0.5\nb,r,c,0\nc,r,a,1\n")
    problem = run("check", str(tmp_path / "facts.csv"), "--weight", "trust").exception
    assert "facts.csv:3: " in str(problem)


def test_check_gives_one_json_document(leaky: str) -> None:
    output = json.loads(run("check", leaky, "--json").stdout)
    assert output["schema_version"] == 1
    assert output["duplicates"]["train"] == 1
    assert output["overlaps"]["train and test"] == 1
    assert len(output["inverse"]) == 12
    assert output["by_relation"]["r0"] == {"train": 2, "valid": 0, "test": 1}
    assert "Triples by relation" in run("check", leaky).stdout


def test_data_settings_can_be_set(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("bad line\na\tb\tr\n")
    output = run(
        "check", str(tmp_path), "--json",
        "--set", "data.columns=htr", "--set", "data.skip_bad_lines=1",
    )  # fmt: skip
    assert json.loads(output.stdout)["category_by_relation"] == {"r": "1-1"}


def test_bad_data_exits_with_three_and_one_line(allneg: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("a\tb\n")
    done = allneg("data", "check", tmp_path)
    assert done.code == 3
    assert done.out == ""
    assert done.err.startswith("allneg: ")
    assert "train.txt:1: expected head, relation, tail; found 2 fields: 'a\\tb'" in done.err
    assert done.err.count("\n") == 1


def test_help_does_not_import_torch_or_numpy() -> None:
    code = (
        "import sys; sys.argv = ['allneg', 'data', 'check', '--help']\n"
        "from allneg.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "sys.exit(bool({'torch', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_split_writes_a_folder_that_can_be_read(tmp_path: Path) -> None:
    facts = [f"e{i % 30}\t{'r=1' if i % 2 else 'r2'}\te{i * 7 % 31}\n" for i in range(400)]
    (tmp_path / "facts.tsv").write_text("".join(facts))
    options = ("--valid", "0.2", "--test", "0.3", "--seed", "1", "--share", "r=1=0,0")
    output = run("split", str(tmp_path / "facts.tsv"), "--out", str(tmp_path / "one"), *options)
    assert output.exit_code == 0
    assert "split by a hash and seed 1" in output.stderr
    found = json.loads(run("check", str(tmp_path / "one"), "--json").stdout)
    assert found["by_relation"]["r=1"]["train"] == 200
    shares = [found["by_relation"]["r2"][split] / 200 for split in ("valid", "test")]
    assert shares == pytest.approx([0.2, 0.3], abs=0.08)
    again = run("split", str(tmp_path / "facts.tsv"), "--out", str(tmp_path / "two"), "--json")
    counts = json.loads(again.stdout)["triples"]
    assert sum(counts.values()) == 400


def test_a_read_only_disk_is_named_by_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, *_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    (tmp_path / "facts.tsv").write_text("a\tr\tb\n")
    monkeypatch.setattr(Path, "mkdir", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    done = run("split", str(tmp_path / "facts.tsv"), "--out", str(tmp_path / "split"))
    assert isinstance(done.exception, ResourceError)
    assert "split: cannot be written (Read-only file system)" in str(done.exception)


@pytest.mark.parametrize("share", ["r", "r=0.1", "r=a,b", "r=0.5,0.5", "r=-0.1,0.2", "=0,0"])
def test_a_wrong_share_is_refused(tmp_path: Path, share: str) -> None:
    (tmp_path / "facts.tsv").write_text("a\tr\tb\n")
    out = tmp_path / "out"
    problem = run("split", str(tmp_path / "facts.tsv"), "--out", str(out), "--share", share)
    assert isinstance(problem.exception, UsageError)
    assert "write RELATION=VALID,TEST" in str(problem.exception)
    assert not out.exists()
