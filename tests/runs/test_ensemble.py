"""An ensemble of runs: its scores against a plain sum, its folder, and everything that reads it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from allneg import ensemble, load
from allneg.errors import DataError, RecipeError, RunError, UsageError
from allneg.evaluation import Report, evaluate
from allneg.evaluation.counts import count_facts
from allneg.evaluation.ensemble import Weighting
from allneg.graph import Graph
from allneg.graph.queries import SIDES, Queries
from allneg.models.ensemble import Ensemble
from allneg.recipe import Recipe
from allneg.runs import Run
from allneg.runs.copy import export
from allneg.runs.ensemble import join
from allneg.runs.verify import verify
from allneg.scoring import scores
from allneg.training import fit
from allneg.training.train import resume

MEMBERS = {
    "complex": (),
    "distmult": ("model.name=distmult", "model.reciprocal=false", "training.seed=3"),
    "tucker": ("model.name=tucker",),
    "rotate": ("model.name=rotate",),
    "transe": ("model.name=transe", "model.norm=2", "model.squared=true", "model.bias=true"),
}
QUERIES = [("tail", "France", "borders"), ("head", "Europe", "in"), ("head", "Italy", "capital_of")]


@pytest.fixture(scope="module")
def members(
    tiny_graph: Graph, quick: Callable[..., Recipe], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Run]:
    folder = tmp_path_factory.mktemp("members")
    runs = {}
    for name, settings in MEMBERS.items():
        recipe = quick("training.epochs=20", "regularizer.name=none", *settings)
        runs[name] = Run.create(folder / name, recipe, tiny_graph)
        fit(runs[name])
    return runs


@pytest.fixture(scope="module")
def run(members: dict[str, Run], tmp_path_factory: pytest.TempPathFactory) -> Run:
    folders = [member.folder for member in members.values()]
    return ensemble(folders, out=tmp_path_factory.mktemp("made") / "all", device="cpu")


def queries(graph: Graph) -> Queries:
    """All tail and head queries of test."""
    found = [Queries.of(torch.from_numpy(graph.test), side) for side in SIDES]
    names = ("side", "entity", "relation", "answer")
    return Queries(*(torch.cat([getattr(part, name) for part in found]) for name in names))


@pytest.mark.parametrize("names", [list(MEMBERS), ["complex", "distmult", "tucker"]])
def test_scores_are_the_weighted_sum_of_the_members(
    members: dict[str, Run], names: list[str], tiny_graph: Graph
) -> None:
    runs, generator = [members[name] for name in names], torch.Generator().manual_seed(0)
    weights = torch.rand(tiny_graph.n_relations, 2, len(runs), generator=generator)
    spreads = [0.5 + i for i in range(len(runs))]
    reciprocal = [run.recipe.model.reciprocal for run in runs]
    model = Ensemble.of([run.model for run in runs], reciprocal, spreads)
    tables, asked = join([run.tables() for run in runs], model, weights), queries(tiny_graph)
    with torch.no_grad():
        own = [scores(run.model, run.tables(), asked) for run in runs]
        found = scores(model, tables, asked)
    for i, row in enumerate(found):
        w = weights[asked.relation[i], asked.side[i]].tolist()
        scale = sum(a * b for a, b in zip(w, spreads, strict=True))
        expected = sum(w[m] / spreads[m] * scale * own[m][i] for m in range(len(runs)))
        assert row.tolist() == pytest.approx(torch.as_tensor(expected).tolist(), abs=1e-4)
    assert (model.kernel.name == "dot") == ("rotate" not in names)


@pytest.mark.parametrize("name", list(MEMBERS))
def test_a_single_weight_of_one_gives_that_members_scores_and_ranks(
    members: dict[str, Run], name: str, tiny_graph: Graph, run: Run
) -> None:
    model = run.model
    assert isinstance(model, Ensemble)
    one = torch.eye(len(members))[list(MEMBERS).index(name)].expand(tiny_graph.n_relations, 2, -1)
    tables = join([member.tables() for member in members.values()], model, one)
    member, asked = members[name], queries(tiny_graph)
    with torch.no_grad():
        expected = scores(member.model, member.tables(), asked)
        assert torch.allclose(scores(model, tables, asked), expected, atol=1e-5)
    assert evaluate(model, tables, tiny_graph).mrr == pytest.approx(member.report.mrr)


def test_valid_is_at_least_as_good_as_with_every_member(
    run: Run, members: dict[str, Run], tiny_graph: Graph
) -> None:
    own = [evaluate(r.model, r.tables(), tiny_graph, "valid").mrr for r in members.values()]
    found = evaluate(run.model, run.tables(), tiny_graph, "valid").mrr
    about = run.report.ensemble
    assert [member["valid_mrr"] for member in about["members"]] == pytest.approx(own)
    assert found == pytest.approx(about["valid_mrr"])
    assert found >= max(own) - 1e-6


def test_weights_do_not_depend_on_test(
    members: dict[str, Run], tiny_graph: Graph, tmp_path: Path
) -> None:
    """With the filter `seen`, not even the facts of test have an influence."""
    found = []
    for name, test in (("one", tiny_graph.test), ("two", tiny_graph.test[1:2])):
        graph, folders = replace(tiny_graph, test=test), []
        for member in (members["complex"], members["rotate"]):
            recipe = member.recipe.with_settings(["evaluation.filter=seen"])
            own = Run.create(tmp_path / name / member.folder.name, recipe, graph)
            fit(own)
            folders.append(own.folder)
        found.append(ensemble(folders, out=tmp_path / name / "both", device="cpu"))
    assert found[0].tables().relations.equal(found[1].tables().relations)
    assert found[0].report.count != found[1].report.count


def test_the_report_names_members_weights_and_protocol(run: Run) -> None:
    report = Run.open(run.folder).report
    assert report.mrr == pytest.approx(evaluate(run.model, run.tables(), run.graph).mrr)
    assert [m["run"] for m in report.ensemble["members"]] == list(MEMBERS)
    assert [m["model"] for m in report.ensemble["members"]] == list(MEMBERS)
    assert sum(report.ensemble["weights"]) == pytest.approx(1)
    assert "filtered by train + valid + test" in report.ensemble["selection"]
    assert report.protocol["split"] == "test"
    assert report.baselines


def test_a_folder_needs_neither_its_members_nor_its_place(
    members: dict[str, Run], tmp_path: Path
) -> None:
    copies = [
        shutil.copytree(members[name].folder, tmp_path / name) for name in ("complex", "rotate")
    ]
    made = ensemble(copies, out=tmp_path / "made", device="cpu")
    answers = load(made.folder, "cpu").tails("France", "borders")
    for path in copies:
        shutil.rmtree(path)
    moved = made.folder.rename(tmp_path / "moved")
    assert load(moved, "cpu").tails("France", "borders") == answers
    assert [check.wrong for check in verify(moved, rank=True) if check.wrong] == []


def test_counts_are_a_member(members: dict[str, Run], tmp_path: Path) -> None:
    one = members["complex"]
    made = ensemble(one.folder, out=tmp_path / "made", device="cpu", counts=True)
    again = Run.open(made.folder)
    assert again.model_name == "ensemble: complex, counts"
    assert again.members == made.members
    assert [member["run"] for member in again.report.ensemble["members"]] == ["complex", "counts"]
    assert again.report.ensemble["valid_mrr_cross_fitted"] > 0
    assert again.report.calibration.keys() == one.report.calibration.keys()
    assert [check.wrong for check in verify(again.folder, rank=True) if check.wrong] == []
    # They do not change which entities are similar.
    near = [load(run.folder, "cpu").neighbours("France", k=3) for run in (one, again)]
    assert [found.entity for found in near[0]] == [found.entity for found in near[1]]


def test_counts_lower_only_the_scores_of_new_facts(
    members: dict[str, Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("allneg.runs.ensemble.choose_weights", _first)
    one = members["complex"]
    made = ensemble([one.folder], out=tmp_path / "made", device="cpu", counts=True)
    plain, counted = load(one.folder, "cpu"), load(made.folder, "cpu")
    taken = counted._taken
    assert taken is not None
    graph = one.graph
    for side in SIDES:
        asked = Queries.of(torch.from_numpy(graph.train), side)
        lower = plain.scores(asked) - counted.scores(asked)
        rows, answers = plain.known["train"].pairs(asked)
        assert lower[rows, answers].abs().max() < 1e-4
        lower[rows, answers] = 0
        expected = scores(*count_facts(graph, 99), asked)
        expected[rows, answers] = 0
        assert torch.allclose(lower, -expected, atol=1e-4)
        facts = torch.from_numpy(graph.train)
        assert torch.allclose(
            plain.fact_scores(facts, side), counted.fact_scores(facts, side), atol=1e-4
        )
    between = [
        {at.relation: at.score for at in predictor.relations("Paris", "France") if at.known}
        for predictor in (plain, counted)
    ]
    assert between[1] == pytest.approx(between[0], abs=1e-4)


def _first(found: np.ndarray, grid: np.ndarray, graph: Graph) -> Weighting:
    """The first weighting of the grid for all relations."""
    weights = np.broadcast_to(grid[0], (graph.n_relations, 2, grid.shape[1])).copy()
    return Weighting(grid[0], weights, [0.0] * grid.shape[1], 0.0, 0.0, 0.0)


def test_predictions_are_the_scores_of_the_ensemble(run: Run) -> None:
    predictor = load(run.folder, "cpu")
    names = run.graph.vocabulary
    for side, entity, relation in QUERIES:
        given = torch.tensor([names.entity(entity)]), torch.tensor([names.relation(relation)])
        asked = Queries.for_side(side, *given, given[0])  # type: ignore[arg-type]
        with torch.no_grad():
            expected = scores(run.model, run.tables(), asked)[0]
        (answers,) = predictor.answers([(side, entity, relation)], k=99)  # type: ignore[list-item]
        found = {answer.entity: answer.score for answer in answers.predictions}
        assert found == pytest.approx(
            dict(zip(names.entities, expected.tolist(), strict=True)), abs=1e-4
        )
    assert len(predictor.relations("France", "Spain")) == run.graph.n_relations


def test_an_ensemble_is_exported_like_a_run(run: Run, tmp_path: Path) -> None:
    export(run, tmp_path / "copy")
    copied = Run.open(tmp_path / "copy")
    assert copied.members == run.members
    assert copied.tables().entities.equal(run.tables().entities)


def test_an_ensemble_is_not_trained(run: Run, tmp_path: Path) -> None:
    assert resume(run.folder).report.mrr == run.report.mrr
    with pytest.raises(RecipeError, match="an ensemble is not trained; resume the runs"):
        resume(run.folder, settings=["training.epochs=99"])
    copy = shutil.copytree(run.folder, tmp_path / "copy")
    (copy / "status.json").write_text('{"state": "running"}')
    with pytest.raises(RecipeError, match="an ensemble is not trained; resume the runs"):
        resume(copy)


def test_other_data_a_single_run_and_ensembles_are_refused(
    members: dict[str, Run], run: Run, tiny_graph: Graph, tmp_path: Path
) -> None:
    one, out = members["complex"], tmp_path / "out"
    other = Run.create(tmp_path / "b", one.recipe, replace(tiny_graph, train=tiny_graph.train[1:]))
    with pytest.raises(DataError, match=r"not the same data.\nSHA-256 of train"):
        ensemble([one.folder, other.folder], out=out)
    with pytest.raises(UsageError, match="at least two runs"):
        ensemble([one.folder], out=out)
    with pytest.raises(UsageError, match="is an ensemble; give its members instead"):
        ensemble([one.folder, run.folder], out=out)
    with pytest.raises(RecipeError, match="already exists"):
        ensemble([one.folder, one.folder], out=one.folder)
    empty = replace(tiny_graph, valid=tiny_graph.valid[:0])
    alone = Run.create(tmp_path / "c", one.recipe, empty)
    with pytest.raises(DataError, match="has no valid triples"):
        ensemble([alone.folder, alone.folder], out=out)
    assert not out.exists()


def test_a_failure_leaves_no_folder(
    members: dict[str, Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("allneg.runs.finished.checkpoint.save", fail)
    with pytest.raises(OSError, match="No space left"):
        ensemble([members["complex"].folder, members["rotate"].folder], out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("listed", [None, 3, "x", [{"name": "a"}], [{"name": 1, "spread": 0.5}]])
def test_damaged_members_are_refused(run: Run, listed: object, tmp_path: Path) -> None:
    folder = shutil.copytree(run.folder, tmp_path / "copy")
    about = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**about, "members": listed}))
    with pytest.raises(
        RunError, match=r"run.json: does not list the members of an ensemble; damaged"
    ):
        Run.open(folder)


@pytest.mark.parametrize("part", ["weights", "members", "by_relation", "selection"])
def test_a_report_without_a_part_is_refused(run: Run, part: str) -> None:
    content = run.report.to_json()
    content["ensemble"] = {**content["ensemble"], part: []}
    with pytest.raises(TypeError, match="not a report"):
        Report.from_json(content)


def test_changed_members_do_not_fit_the_weights(run: Run, tmp_path: Path) -> None:
    folder = shutil.copytree(run.folder, tmp_path / "copy")
    about = json.loads((folder / "run.json").read_text())
    about["members"][0]["spread"] *= 2
    (folder / "run.json").write_text(json.dumps(about))
    with pytest.raises(RunError, match=r"another run, or run.json was changed"):
        Run.open(folder).tables()
