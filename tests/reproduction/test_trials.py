"""The list of trials can be read, trained and adopted."""

from __future__ import annotations

import contextlib
import io
import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from reproduction.trials import is_done, main, read_trials, result_path, short_toml

from allneg import cli, recipes
from allneg.cli import workers
from allneg.errors import RecipeError
from allneg.recipe import Recipe
from allneg.reproduce import Result, Results, comparable
from reproduction import trials as module

Entry = Callable[..., dict[str, Any]]


class Here:
    """Trains in this process: starting others is slow."""

    is_running, process = False, SimpleNamespace(returncode=0)

    @classmethod
    def start(cls, arguments: list[str], environment: object) -> Here:
        with contextlib.redirect_stdout(io.StringIO()):
            cli.allneg(arguments, standalone_mode=False)
        return cls()

    def lines(self) -> list[str]:
        return []


def test_every_trial_differs_from_the_recipe_of_its_cell_and_keeps_its_filter() -> None:
    found = read_trials()
    assert [trial.minutes for trial in found] == sorted(trial.minutes for trial in found)
    for trial in found:
        own = trial.cell.recipe()
        assert trial.recipe.data.name == trial.cell.data, trial
        assert trial.recipe.evaluation.filter == own.evaluation.filter, trial
        if trial.cell.row in ("simple", "complex", "rotate"):
            assert trial.recipe.loss.negatives == "per_query", trial
        short = Recipe.from_tables(tomllib.loads(short_toml(trial.recipe)))
        assert comparable(short) == comparable(trial.recipe), trial


def test_an_unknown_cell_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "trials.toml").write_text('[["wn18/simpel"]]\nminutes = 1\n')
    with pytest.raises(RecipeError, match="no cell is called 'wn18/simpel'; close names: "):
        read_trials(tmp_path / "trials.toml")


@pytest.mark.usefixtures("quick_data")
def test_trials_are_trained_and_ordered_by_valid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "Worker", Here)
    arguments = ["--cells", "wn18rr/ablation/negatives", "--quick"]
    arguments += ["--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
    assert main([*arguments, "--limit-seconds", "0"]) == 0
    assert "2 runs are left; run the same command to continue" in capsys.readouterr().err
    assert main(arguments) == 0
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert [row["cell"] for row in summary] == ["wn18rr/ablation/negatives"] * 2
    assert summary[0]["valid_mrr"] >= summary[1]["valid_mrr"]
    files = [Result.read(path) for path in (tmp_path / "out" / "wn18rr").iterdir()]
    assert all(file.quick for file in files)
    capsys.readouterr()
    assert main(arguments) == 0
    assert "0 of 2 runs are left" in capsys.readouterr().err


def test_the_best_on_valid_is_adopted_and_the_others_are_kept(
    tmp_path: Path, entry: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = (t for t in read_trials() if t.cell.name == "wn18rr/ablation/loss")
    results, out, own = Results(tmp_path / "results"), tmp_path / "out", one.cell.recipe()
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(recipes, "FOLDER", tmp_path / "recipes")
    monkeypatch.setattr(module, "read_trials", lambda quick: [one, other])
    # The better test MRR of the second does not count.
    for trial, valid, test in ((one, 0.5, 0.4), (other, 0.4, 0.6)):
        seed = {**entry(test), "valid_mrr": valid}
        path = result_path(out, trial.tasks([0], out)[0])
        Result("wn18rr", one.cell.row, trial.recipe.to_toml(), [seed]).write(path)
    (tmp_path / "recipes/wn18rr/ablation").mkdir(parents=True)
    arguments = ["--adopt", "--out", str(out)]
    assert main(arguments) == 0
    assert not results.path(one.cell).exists()  # the recipe of the cell has no result yet
    results.add(one.cell, own, {**entry(0.9), "valid_mrr": 0.45})
    assert main(arguments) == 0
    chosen = results.get(one.cell)
    assert chosen is not None
    assert chosen.is_of(one.recipe)
    assert comparable(one.cell.recipe()) == comparable(one.recipe)
    kept = sorted((results.folder / "tried/wn18rr/ablation").iterdir())
    assert [path.name for path in kept] == ["loss-1.json", "loss-2.json"]
    assert [Result.read(path).values("valid_mrr") for path in kept] == [[0.45], [0.4]]
    assert main(arguments) == 0
    assert sorted((results.folder / "tried/wn18rr/ablation").iterdir()) == kept
    # Where the folder of trials is gone, what was published or kept is not trained again.
    for trial in (one, other):
        first, second = trial.tasks([0, 1], tmp_path)
        assert is_done(first, tmp_path / "gone", results)
        assert not is_done(second, tmp_path / "gone", results)
