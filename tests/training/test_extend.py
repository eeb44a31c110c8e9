"""New entities get rows, the others keep theirs; warm starts; finished runs that go on."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import allneg
from allneg.errors import (
    DataError,
    Interrupted,
    OutOfMemoryError,
    RecipeError,
    RunError,
    UsageError,
)
from allneg.graph import Graph
from allneg.graph.graph import SPLITS
from allneg.graph.queries import Queries
from allneg.models import MODELS
from allneg.recipe import Recipe
from allneg.runs import Run
from allneg.runs.parents import Parent, Touch
from allneg.runs.verify import verify
from allneg.scoring import Shard, Tables
from allneg.scoring.distributed import SINGLE_PROCESS
from allneg.scoring.losses import LOSSES
from allneg.scoring.negatives import NegativeSample
from allneg.training import Callbacks, fit, partial
from allneg.training.extend import extend
from allneg.training.partial import PartialTrainer, SplitQueries, mirror_images, shares
from allneg.training.start import place
from allneg.training.trainer import Trainer
from processes import start, stop_after

Made = Callable[..., Run]

FACTS = [
    ("Andorra", "borders", "France"),
    ("Andorra", "borders", "Spain"),
    ("Andorra", "in", "Europe"),
    ("Ordino", "in", "Andorra"),
    ("Monaco", "borders", "France"),
    ("Monaco", "in", "Europe"),
]
SHORT = {"training.epochs": 3}


class Messages(Callbacks):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def on_message(self, line: str) -> None:
        self.lines.append(line)


def changed(run: Run, child: Run) -> set[str]:
    """The names of the run whose rows the child has changed."""
    old, new, names = run.tables(), child.tables(), set()
    for kind in ("entities", "relations"):
        known: Any = getattr(run.graph.vocabulary, kind)
        before, after = getattr(old, kind), getattr(new, kind)
        if kind == "relations" and new.reciprocal:
            before, after = (
                table.detach().unflatten(0, (2, -1)).transpose(0, 1).flatten(1)
                for table in (before, after)
            )
        for i, name in enumerate(known):
            if before[i].detach().numpy().tobytes() != after[i].detach().numpy().tobytes():
                names.add(name)
    if old.shared is not None:
        assert torch.equal(old.shared, new.shared)
    return names


@pytest.mark.parametrize(
    "settings",
    [
        ("model.name=complex",),
        ("model.name=complex", "loss.grouped=true", "training.average=1"),
        ("model.name=rotate", "optimizer.name=adam", "model.reciprocal=false"),
        ("model.name=transe", "optimizer.name=sgd", "loss.mask_known=true"),
        ("model.name=tucker", "loss.negatives=shared", "loss.n_negatives=4"),
    ],
    ids=lambda settings: settings[0].partition("=")[2],
)
def test_only_new_rows_change(trained: Made, tmp_path: Path, settings: tuple[str, ...]) -> None:
    run = trained(*settings)
    child = run.extend(FACTS, out=tmp_path / "child", settings=SHORT)
    assert changed(run, child) == set()
    assert child.graph.vocabulary.entities[12:] == ("Andorra", "Monaco", "Ordino")
    start = child.last()
    assert start is not None
    for name, tensor in run.last().optimizer.items():  # type: ignore[union-attr]
        if name.startswith("entities.") and tensor.dim() and not name.endswith("average"):
            assert torch.equal(start.optimizer[name][:12], tensor)
    assert not any(check.wrong for check in verify(child.folder, rank=True))


@pytest.mark.parametrize("model", MODELS)
def test_rows_of_known_names_stay_with_every_model(
    trained: Made, tmp_path: Path, model: str
) -> None:
    run = trained(f"model.name={model}", "training.epochs=2")
    child = run.extend([*FACTS, ("Rome", "near", "x")], out=tmp_path / "child", settings=SHORT)
    assert changed(run, child) == set()
    assert child.graph.n_relations == run.graph.n_relations + 1


@pytest.mark.parametrize("model", ["complex", "rotate"])
def test_new_entities_answer_their_facts(trained: Made, tmp_path: Path, model: str) -> None:
    long = ("model.dim=16", "training.epochs=40", "optimizer.learning_rate=0.2")
    run = trained(f"model.name={model}", "model.scale=0.1", "regularizer.weight=0.001", *long)
    child = run.extend(FACTS, out=tmp_path / "child", settings={"training.epochs": 30})
    assert child.status["best_epoch"] == 30
    found = allneg.load(child.folder).tails("Andorra", "borders", k=2)
    assert {answer.entity for answer in found} == {"France", "Spain"}


@pytest.mark.parametrize(
    "settings", [(), ("model.norm=2",), ("model.norm=2", "model.squared=true")]
)
def test_new_rows_begin_at_the_least_sum_of_distances(
    trained: Made, tiny_graph: Graph, settings: tuple[str, ...]
) -> None:
    run = trained("model.name=rotate", "model.scale=0.1", *settings)
    n = tiny_graph.n_entities
    rows = run.tables().entities.detach()
    tables = Tables(
        torch.cat([rows, rows.new_zeros(2, rows.shape[1])]), run.tables().relations.detach(),
        Shard.whole(n + 2), True,
    )  # fmt: skip
    facts = torch.tensor([[n, 0, 1], [n, 0, 2], [3, 1, n], [n, 2, 4], [n + 1, 0, n]])
    place(run.model, tables, torch.arange(n + 2) >= n, facts)
    heads = tables.gather(Queries.of(facts[[0, 1, 3]], "head"))
    tails = tables.gather(Queries.of(facts[[2]], "tail"))
    points = torch.cat([run.model.tail_query(x.entity, x.relation) for x in (heads, tails)])
    found = tables.entities.detach()[n]

    def total(row: torch.Tensor) -> float:
        return float(-run.model.kernel(points.detach(), row.unsqueeze(0)).sum())

    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        other = found + 0.01 * torch.randn(found.shape, generator=generator)
        assert total(found) < total(other)
    assert tables.entities[n + 1].norm() > 0  # its only neighbour is new


def test_a_fact_and_its_mirror_image_count_as_one_neighbour(tiny_graph: Graph) -> None:
    recipe = Recipe().with_settings(["model.name=rotate", "model.dim=4", "loss.negatives=all"])
    n = tiny_graph.n_entities
    new = [[n - 1, 0, 1], [1, 0, n - 1], [2, 0, n - 1], [3, 1, n - 1]]
    old = tiny_graph.train[(tiny_graph.train[:, [0, 2]] < n - 1).all(1)]
    graph = replace(tiny_graph, train=np.concatenate([old, np.array(new)]))
    parent = Parent("parent", None, "new", n - 1, graph.n_relations, len(old))
    trainer = PartialTrainer(recipe, graph, torch.device("cpu"), SINGLE_PROCESS, parent)
    _, found = trainer.batches(torch.from_numpy(graph.train), torch.Generator().manual_seed(0))
    totals = {1: 0.0, 2: 0.0, 3: 0.0}
    for some in found:
        assert some.weight is not None
        for entity, answer, weight in zip(some.entity, some.answer, some.weight, strict=True):
            if n - 1 in (entity, answer):
                totals[min(int(entity), int(answer))] += float(weight)
    assert totals == {1: 2.0, 2: 2.0, 3: 2.0}  # both queries of each neighbour

    trainer.tables.relations.detach().zero_()
    place(trainer.model, trainer.tables, torch.arange(n) == n - 1, torch.tensor(new[:3]))
    rows = trainer.tables.entities.detach()
    assert torch.allclose(rows[n - 1], (rows[1] + rows[2]) / 2, atol=1e-5)


def test_mirror_images_are_counted_also_with_many_names() -> None:
    most = 1 << 31  # entities; their pairs and relations together exceed 64 bits
    generator = torch.Generator().manual_seed(0)
    facts = torch.randint(5, (60, 3), generator=generator)
    facts[:, ::2] += most - 5
    keys = [(r, min(h, t), max(h, t)) for h, r, t in facts.tolist()]
    expected = [keys.count(key) for key in keys]
    assert len(set(expected)) > 1
    assert mirror_images(facts, most).tolist() == expected
    assert len(mirror_images(facts[:0], most)) == 0


@pytest.mark.parametrize("settings", [{}, {"norm": 2}, {"norm": 2, "squared": True, "bias": True}])
def test_facts_of_relations_that_fit_closely_count_more(settings: dict[str, Any]) -> None:
    model = MODELS["rotate"](dim=3, scale=0.1, **settings)
    tables = Tables.create(model, 4, Shard.whole(8), reciprocal=True, seed=0)
    others = torch.tensor([[0, 0, 1], [1, 0, 2], [3, 1, 4], [5, 1, 6], [6, 1, 0], [2, 2, 3]])
    facts = torch.tensor([[7, 0, 1], [1, 0, 7], [7, 1, 2], [7, 3, 4]])  # 3 has no other facts
    distances: dict[int, list[float]] = {0: [], 1: [], 3: []}
    rows, ends = tables.entities.detach()[:, : 2 * 3], others.tolist()
    for h, r, t in [*ends, *((t, r + 4, h) for h, r, t in ends)]:  # and their inverses
        turned = torch.view_as_complex(torch.stack(rows[h].chunk(2), 1).contiguous())
        turned = turned * torch.exp(1j * tables.relations.detach()[r])
        gap = (turned - torch.complex(*rows[t].chunk(2))).abs()
        far = gap.sum() if model.norm == 1 else gap.norm() ** (2 if model.squared else 1)
        if r % 4 in distances:
            distances[r % 4].append(float(far))
    known = [far for some in distances.values() for far in some]
    few = 20 * [sum(known) / len(known)]
    exact = [np.mean([*distances[r], *few]) ** -0.5 for r in facts[:, 1].tolist()]
    expected = np.array(exact) / np.mean(exact) / [2, 2, 1, 1]
    is_own = torch.arange(len(others) + len(facts)) >= len(others)
    found = shares(model, tables, torch.cat([others, facts]), is_own)
    assert found.numpy() == pytest.approx(expected, rel=1e-5)
    assert found[1] != pytest.approx(found[2] / 2)


def test_the_order_of_facts_has_no_influence(toy_run: Run, tmp_path: Path) -> None:
    facts = [*FACTS, ("Monaco", "near", "Andorra"), ("Monaco", "likes", "Andorra")]
    shuffled = random.Random(1).sample(facts, len(facts))
    one = toy_run.extend(facts, out=tmp_path / "one", settings=SHORT)
    other = toy_run.extend(shuffled, out=tmp_path / "other", settings=SHORT)
    assert one.graph.vocabulary == other.graph.vocabulary
    assert one.graph.facts("train") == other.graph.facts("train")
    assert torch.equal(one.tables().entities, other.tables().entities)
    assert torch.equal(one.tables().relations, other.tables().relations)


def test_extending_twice_is_about_extending_once(toy_run: Run, tmp_path: Path) -> None:
    long = {"training.epochs": 60}
    once = toy_run.extend(FACTS, out=tmp_path / "once", settings=long)
    first = toy_run.extend(FACTS[:4], out=tmp_path / "first", settings=long)
    twice = first.extend(FACTS[4:], out=tmp_path / "twice", settings=long)
    assert [parent.name for parent in twice.parents] == ["run", "first"]
    assert [parent.entities for parent in twice.parents] == [12, 14]
    assert changed(first, twice) == set()
    assert abs(twice.report.mrr - once.report.mrr) < 0.005


def test_extending_countries_twice_or_once_gives_about_the_same_mrr(tmp_path: Path) -> None:
    """The MRR of all facts in test, with those of 80 new entities."""
    graph = allneg.read_graph("countries")
    new = random.Random(0).sample(sorted(graph.vocabulary.entities), 80)
    first, later = set(new[:40]), set(new[40:])
    parts: list[dict[str, list[tuple[str, str, str]]]] = [{}, {}, {}]
    for split in SPLITS:
        for part in parts:
            part[split] = []
        for head, relation, tail in graph.facts(split):
            names = {head, tail}
            which = 2 if names & later else 1 if names & first else 0
            parts[which][split].append((head, relation, tail))
    settings = {"model.dim": 16, "training.epochs": 8, "training.batch_size": 250}
    run = allneg.train(parts[0], settings=settings, out=tmp_path / "run")
    both = {split: parts[1][split] + parts[2][split] for split in SPLITS}
    once = run.extend(both, out=tmp_path / "once")
    twice = run.extend(parts[1], out=tmp_path / "half").extend(parts[2], out=tmp_path / "twice")
    assert len(twice.graph.test) == len(once.graph.test) == len(graph.test)
    assert set(twice.graph.facts("train")) == set(graph.facts("train"))
    assert abs(twice.report.mrr - once.report.mrr) < 0.005


def test_neighbours_are_the_entities_of_new_facts(toy_run: Run, tmp_path: Path) -> None:
    child = toy_run.extend(FACTS, out=tmp_path / "child", touch="neighbours", settings=SHORT)
    assert changed(toy_run, child) == {"France", "Spain", "Europe"}


def test_all_rows_continue_from_the_present_state(toy_run: Run, tmp_path: Path) -> None:
    child = toy_run.extend(FACTS, out=tmp_path / "child", touch="all", settings=SHORT)
    assert len(changed(toy_run, child)) == 12 + 3
    assert child.last().optimizer["entities.sum"][:12].min() > 0  # type: ignore[union-attr]


def test_a_new_relation_gets_a_row_and_a_warning(toy_run: Run, tmp_path: Path) -> None:
    told = Messages()
    facts = [("France", "likes", "Italy"), ("France", "borders", "Italy")]
    child = extend(toy_run, facts, out=tmp_path / "child", callbacks=told, settings=SHORT)
    assert changed(toy_run, child) == set()
    assert child.graph.vocabulary.relations[3:] == ("likes",)
    assert "1 fact was in train already" in told.lines
    assert "relation 'likes' has only 1 fact; expect poor answers" in told.lines
    assert not any(line.startswith("no row changes") for line in told.lines)


def test_facts_of_known_names_change_no_row(toy_run: Run, tmp_path: Path) -> None:
    told = Messages()
    facts = [("Italy", "borders", "Spain")]
    child = extend(toy_run, facts, out=tmp_path / "child", callbacks=told)
    assert changed(toy_run, child) == set()
    assert told.lines[1] == (
        "no row changes; --touch neighbours trains the entities of these facts"
    )
    assert child.finished
    assert child.metrics() == []
    known = {a.entity: a.known for a in allneg.load(child.folder).tails("Italy", "borders", k=12)}
    assert known["Spain"] == "train"


def test_more_epochs_of_an_extension_without_trained_rows_change_nothing(
    toy_run: Run, tmp_path: Path
) -> None:
    gone = toy_run.graph.facts("train")[:1]
    child = extend(toy_run, remove=gone, out=tmp_path / "child")
    epochs = child.recipe.training.epochs + 1
    more = child.with_settings({"training.epochs": epochs})
    fit(more)
    assert changed(toy_run, more) == set()
    assert len(more.metrics()) == 1


def test_removed_facts_are_not_known(toy_run: Run, tmp_path: Path) -> None:
    gone = [("Sicily", "in", "Italy"), ("Nobody", "in", "Italy")]
    told = Messages()
    child = extend(toy_run, remove=gone, out=tmp_path / "child", callbacks=told)
    assert told.lines[:2] == ["1 fact removed", "1 of the facts to remove are not in tiny"]
    assert len(child.graph.train) == len(toy_run.graph.train) - 1
    assert changed(toy_run, child) == set()
    more = {"touch": "neighbours", "settings": SHORT}
    child = toy_run.extend(remove=gone, out=tmp_path / "refitted", **more)
    assert changed(toy_run, child) == {"Sicily", "Italy"}
    with pytest.raises(DataError, match="none of its facts is in tiny"):
        toy_run.extend(remove=gone[1:], out=tmp_path / "none")


def test_weights_and_splits_of_new_facts_are_added(trained: Made, tmp_path: Path) -> None:
    run = trained("training.epochs=1")
    parts = {"train": [(*FACTS[0], 2.0)], "valid": [(*FACTS[1], 1.0)]}
    settings = {"data.columns": "hrtw", **SHORT}
    child = run.extend(parts, out=tmp_path / "child", settings=settings)
    assert child.graph.weights is not None
    assert child.graph.weights.tolist() == [1.0] * len(run.graph.train) + [2.0]
    assert len(child.graph.valid) == len(run.graph.valid) + 1


def test_facts_are_not_judged_as_a_whole_graph(trained: Made, tmp_path: Path) -> None:
    """One entity with many relations; a test fact between known names."""
    run, told = trained("training.epochs=1", "data.drop_unseen=true"), Messages()
    parts = {
        "train": [("Monaco", f"relation {i}", "France") for i in range(6)],
        "test": [("Italy", "in", "Earth"), ("Nobody", "in", "Earth"), ("Paris", "in", "France")],
    }
    child = extend(run, parts, out=tmp_path / "child", settings=SHORT, callbacks=told)
    assert set(child.graph.facts("test")) - set(run.graph.facts("test")) == {
        ("Italy", "in", "Earth"), ("Paris", "in", "France"),
    }  # fmt: skip
    assert told.lines[:2] == [
        "1 of the new facts of test is also in train or valid",
        "tiny: 1 entity and 0 relations are not in train; they occur in 0 valid and 1 test "
        "triples, which are removed; the names keep their ids (data.drop_unseen)",
    ]
    assert told.lines[2].startswith("2 new entities, 6 new relations and 6 new facts")


def test_settings_of_the_first_graph_are_not_noted(trained: Made, tmp_path: Path) -> None:
    run = trained("training.epochs=1", "data.keep_relations=in,borders", "data.split_seed=4")
    parts = {"train": [("Monaco", "in", "Europe")], "test": [("Monaco", "in", "Earth")]}
    told = Messages()
    extend(run, parts, out=tmp_path / "child", settings=SHORT, callbacks=told)
    assert told.lines[0].startswith("1 new entity, 0 new relations and 1 new fact")


def test_facts_of_a_relation_that_train_lacks_are_left_out_with_drop_unseen(
    trained: Made, tmp_path: Path
) -> None:
    run = trained("training.epochs=1", "data.drop_unseen=true")
    parts = {"train": FACTS, "test": [("Italy", "likes", "Spain")]}
    child = run.extend(parts, out=tmp_path / "child", settings=SHORT)
    assert child.graph.facts("test") == run.graph.facts("test")


@pytest.mark.parametrize("touch", ["neighbors", "start", None])
def test_an_unknown_touch_is_refused(toy_run: Run, tmp_path: Path, touch: Any) -> None:
    with pytest.raises(UsageError, match="touch must be new, neighbours or all, not"):
        toy_run.extend(FACTS, out=tmp_path / "child", touch=touch)
    assert not (tmp_path / "child").exists()


def test_weights_that_the_loss_cannot_use_are_refused(trained: Made, tmp_path: Path) -> None:
    run = trained("training.epochs=1", "loss.name=logistic", "loss.grouped=true")
    with pytest.raises(RecipeError, match=r"loss.grouped does not work with weights"):
        run.extend([(*FACTS[0], 2.0)], out=tmp_path / "x", settings={"data.columns": "hrtw"})
    assert not (tmp_path / "x").exists()


def test_an_interrupted_extension_continues_bit_identically(
    toy_run: Run, tmp_path: Path, content: Callable[[Run], dict[str, Any]]
) -> None:
    whole = toy_run.extend(FACTS, out=tmp_path / "whole", settings=SHORT)
    with pytest.raises(Interrupted):
        extend(toy_run, FACTS, out=tmp_path / "cut", settings=SHORT, stopped_by=stop_after(5))
    cut = allneg.resume(tmp_path / "cut")
    assert content(cut) == content(whole)


@pytest.mark.parametrize("saved", [True, False], ids=["after a checkpoint", "before the first"])
def test_a_kill_leaves_parent_and_child_whole(
    toy_copy: Run, tmp_path: Path, content: Callable[[Run], dict[str, Any]], saved: bool
) -> None:
    settings = SHORT | {"training.save_seconds": 0 if saved else 60}
    code = f"""import os, allneg

class Killed(allneg.Callbacks):
    n_steps = 0

    def on_step(self, *_):
        self.n_steps += 1
        if self.n_steps == 5:
            os.kill(os.getpid(), 9)

allneg.extend({str(toy_copy.folder)!r}, {FACTS}, out={str(tmp_path / "child")!r},
              settings={settings}, callbacks=Killed())
"""
    killed = start(exec, code, {})
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    assert not any(check.wrong for check in verify(toy_copy.folder))
    whole = toy_copy.extend(FACTS, out=tmp_path / "whole", settings=settings)
    if saved:
        assert content(allneg.resume(tmp_path / "child")) == content(whole)
    else:
        for use in (allneg.resume, allneg.load):
            with pytest.raises(RunError, match="delete it and run `allneg extend` again"):
                use(tmp_path / "child")


def test_the_memory_of_other_facts_is_planned(
    toy_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, graph = toy_run.recipe, toy_run.graph
    per_query = graph.n_entities + 6 * toy_run.model.entity_width
    assert partial.bytes_of_others(recipe, graph) == 4 * 2 * len(graph.train) * per_query
    monkeypatch.setattr("allneg.training.extend.bytes_of_others", lambda *_: 1 << 60)
    with pytest.raises(OutOfMemoryError, match="training needs"):
        toy_run.extend(FACTS, out=tmp_path / "child")
    assert toy_run.extend(FACTS, out=tmp_path / "all", touch="all").finished


def test_a_warm_start_has_shorter_rows_of_the_same_names(toy_run: Run, tmp_path: Path) -> None:
    facts = [("Rome", "in", "Italy"), ("Rome", "hosts", "Monaco"), ("Monaco", "hosts", "Italy")]
    told = Messages()
    one_step = {"training.epochs": 1, "optimizer.learning_rate": 1e-30}
    run = allneg.train(
        {"train": facts}, start=toy_run.folder, out=tmp_path / "warm", settings=one_step,
        callbacks=told,
    )  # fmt: skip
    old, new = toy_run.graph.vocabulary, run.graph.vocabulary
    before, after = toy_run.tables().entities, run.tables().entities
    for name in ("Rome", "Italy"):
        assert torch.allclose(0.3 * before[old.entity(name)], after[new.entity(name)])
    relations = toy_run.tables().relations, run.tables().relations
    assert torch.equal(relations[0][old.relation("in")], relations[1][new.relation("in")])
    assert run.recipe.model == toy_run.recipe.model
    assert f"2 of 3 entities begin with the rows of {toy_run.folder}" in told.lines
    assert [parent.touch for parent in run.parents] == ["start"]
    told, other = Messages(), {"model.dim": 5}
    with pytest.raises(RecipeError, match=r"model.dim is 5, but rows of .* have 4"):
        allneg.train(
            {"train": facts}, start=toy_run, settings=other, out=tmp_path / "x", callbacks=told
        )
    assert not any("begin with the rows" in line for line in told.lines)
    with pytest.raises(RecipeError, match="none of the entities"):
        allneg.train({"train": [("a", "in", "b")]}, start=toy_run, out=tmp_path / "y")
    assert not (tmp_path / "x").exists()


def test_facts_that_the_rows_were_trained_on_are_noted(toy_run: Run, tmp_path: Path) -> None:
    told, known = Messages(), toy_run.graph.facts("train")
    parts = {"train": known[4:], "valid": [*known[:2], FACTS[0]], "test": [*known[2:4], FACTS[1]]}
    allneg.train(parts, start=toy_run, settings=SHORT, out=tmp_path / "warm", callbacks=told)
    expected = (
        f"{toy_run.folder} was trained on 4 facts of valid and test, whose ranks are too good"
    )
    assert expected in told.lines


@pytest.mark.parametrize("model", ["complex", "transe"])
def test_the_usual_dtype_of_a_program_changes_no_start(
    trained: Made, tmp_path: Path, model: str
) -> None:
    run, made = trained(f"model.name={model}", "training.epochs=1"), list[Run]()
    for dtype in (torch.float32, torch.float64):
        out = tmp_path / str(dtype)
        torch.set_default_dtype(dtype)
        try:
            made.append(run.extend(FACTS, out=out / "child", settings=SHORT))
            facts = run.graph.facts("train")
            made.append(allneg.train(facts, start=run, settings=SHORT, out=out / "warm"))
        finally:
            torch.set_default_dtype(torch.float32)
    for usual, odd in zip(made[:2], made[2:], strict=True):
        assert odd.tables().entities.equal(usual.tables().entities)


@pytest.mark.parametrize("optimizer, factor", [("adagrad", 2), ("adam", 0.3)])
def test_a_warm_start_takes_half_of_the_epochs(
    toy_run: Run, optimizer: str, factor: float, quick: Callable[..., Recipe], tmp_path: Path
) -> None:
    settings = "training.epochs=7", "evaluation.every=3", f"optimizer.name={optimizer}"
    first = allneg.train(toy_run.graph, recipe=quick(*settings), out=tmp_path / "first")
    again = allneg.train(toy_run.graph, start=first, out=tmp_path / "again").recipe
    assert (again.training.epochs, again.evaluation.every) == (4, 2)
    rates = again.optimizer.learning_rate, first.recipe.optimizer.learning_rate
    assert rates[0] == factor * rates[1]
    given = allneg.train(toy_run.graph, start=first, recipe=first.recipe, out=tmp_path / "given")
    assert given.recipe == first.recipe


def test_changes_of_a_recipe_are_not_made_twice(toy_run: Run, tmp_path: Path) -> None:
    rate, facts = toy_run.recipe.optimizer.learning_rate, [("Bern", "in", "Italy")]
    child = toy_run.extend(FACTS, out=tmp_path / "child", settings=["hardware.device=cpu"])
    assert child.recipe.optimizer.learning_rate == 2 * rate
    grandchild = Run.open(child.folder).extend(facts, out=tmp_path / "grandchild")
    assert grandchild.recipe == child.recipe
    whole = grandchild.extend(FACTS[:1], out=tmp_path / "whole", touch="all")
    assert whole.recipe.training.epochs == toy_run.recipe.training.epochs
    assert whole.recipe.optimizer == toy_run.recipe.optimizer
    assert whole.recipe.hardware.device == "cpu"  # as it was set
    warm = allneg.train(child.graph, start=child, out=tmp_path / "warm")
    warmer = allneg.train(child.graph, start=Run.open(warm.folder), out=tmp_path / "warmer")
    assert warmer.recipe == warm.recipe
    assert warm.recipe.training.epochs == -(-toy_run.recipe.training.epochs // 2)


@pytest.mark.parametrize(
    "settings, more, difference",
    [
        ((), ("training.epochs=8",), ": none"),
        (("optimizer.schedule=cosine",), ("training.epochs=8",), "followed the cosine to its end"),
        (("training.epochs=5",), ("training.epochs=8",), "also ranked after epoch 5"),
        (("evaluation.every=1", "evaluation.patience=1", "optimizer.learning_rate=1e-30"),
         ("training.epochs=8",), "raise evaluation.patience"),
    ],
)  # fmt: skip
def test_a_finished_run_that_continues_tells_the_difference(
    trained: Made, settings: tuple[str, ...], more: tuple[str, ...], difference: str
) -> None:
    run, told = trained(*settings), Messages()
    allneg.resume(run.folder, settings=more, callbacks=told)
    assert difference in told.lines[0]


def test_damaged_parents_are_refused(toy_run: Run, tmp_path: Path) -> None:
    child = toy_run.extend(FACTS, out=tmp_path / "child", settings=SHORT)
    path = child.folder / "run.json"
    path.write_text(path.read_text().replace('"touch": "new"', '"touch": "old"'))
    with pytest.raises(RunError, match="does not list the run's parents"):
        Run.open(child.folder)


def test_a_finished_copy_and_an_ensemble_are_not_extended(
    toy_run: Run, tmp_path: Path, tiny_graph: Graph, quick: Callable[..., Recipe]
) -> None:
    other = Run.create(tmp_path / "other", quick("training.epochs=1"), tiny_graph)
    fit(other)
    both = allneg.ensemble([toy_run.folder, other.folder], out=tmp_path / "both")
    told = Messages()
    with pytest.raises(RecipeError, match="an ensemble is not trained; choose a trained run"):
        extend(both, FACTS, out=tmp_path / "child", callbacks=told)
    with pytest.raises(RecipeError, match="an ensemble is not trained; choose a trained run"):
        allneg.train(FACTS, start=both, out=tmp_path / "warm", callbacks=told)
    assert told.lines == []  # nothing was read


def vectors_file(path: Path, names: Sequence[str], width: int = 6) -> str:
    """A CSV file of vectors: those of names with the same first letter are close."""
    lines = ["name," + ",".join(map(str, range(width)))]
    for name in names:
        close = torch.randn(width, generator=torch.Generator().manual_seed(ord(name[0])))
        own = torch.randn(width, generator=torch.Generator().manual_seed(len(name)))
        lines.append(",".join([name, *(f"{x:.4f}" for x in close + 0.01 * own)]))
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_rows_begin_at_the_vectors_of_a_file(trained: Made, tmp_path: Path) -> None:
    some = ("France", "Spain", "Paris", "Portugal", "Nobody")
    file = vectors_file(tmp_path / "start.csv", some)
    still = {"training.epochs": 1, "optimizer.learning_rate": 1e-30, "model.dim": 4,
             "hardware.device": "cpu", "model.scale": 0.5}  # fmt: skip
    data = {"train": [("Paris", "in", "France"), ("Spain", "near", "Portugal"), ("a", "in", "b")]}
    runs = [
        allneg.train(data, out=tmp_path / name, settings={**still, "model.start": start})
        for name, start in (("usual", None), ("begun", file))
    ]
    usual, begun = (run.tables().entities.detach() for run in runs)
    ids = runs[0].graph.vocabulary.entity_ids
    rows = [ids[name] for name in some[:4]]
    others = [ids["a"], ids["b"]]
    assert torch.equal(usual[others], begun[others])
    near = torch.cdist(begun[rows, :3], begun[rows, :3])
    assert near[2, 3] < 0.3 * near[0, 1]  # Paris and Portugal; France and Spain
    assert begun[rows, :3].std() == pytest.approx(0.5, rel=0.5)


def test_a_single_vector_is_a_start(toy_run: Run, tmp_path: Path) -> None:
    file, told = vectors_file(tmp_path / "one.csv", ["France", "Nobody"]), Messages()
    settings = {"model.start": file, "training.epochs": 1, "model.dim": 4}
    allneg.train(FACTS, out=tmp_path / "run", settings=settings, callbacks=told)
    assert f"{file}: has vectors of 1 of 6 entities" in told.lines


def test_new_rows_are_fitted_to_vectors(toy_run: Run, tmp_path: Path) -> None:
    old = toy_run.graph.vocabulary.entities
    file = vectors_file(tmp_path / "all.csv", [*old, "Pisa"])
    still = {"training.epochs": 1, "optimizer.learning_rate": 1e-30, "model.start": file}
    facts, told = [("Pisa", "in", "Italy"), ("Bern", "in", "Europe")], Messages()
    child = extend(toy_run, facts, out=tmp_path / "child", settings=still, callbacks=told)
    assert f"{file}: has vectors of 1 of 2 new entities" in told.lines
    rows = child.tables().entities.detach()
    like = rows[[old.index("Paris"), old.index("Portugal")]].mean(0)
    assert changed(toy_run, child) == set()
    assert torch.dist(rows[13], like) < 0.5 * torch.dist(rows[old.index("Italy")], like)


@pytest.mark.parametrize("optimizer", ["adagrad", "adam"])
def test_features_give_rows_to_entities_without_facts(
    tiny_graph: Graph,
    quick: Callable[..., Recipe],
    tmp_path: Path,
    content: Callable[[Run], dict[str, Any]],
    optimizer: str,
) -> None:
    names = tiny_graph.vocabulary.entities
    file = vectors_file(tmp_path / "features.csv", [*names, "Monaco"])
    recipe = quick(f"model.features={file}", f"optimizer.name={optimizer}", "training.epochs=3")
    train = tiny_graph.train[(tiny_graph.train[:, [0, 2]] != names.index("Portugal")).all(1)]
    graph = replace(tiny_graph, train=train)
    run = allneg.train(graph, recipe=recipe, out=tmp_path / "run")
    with pytest.raises(Interrupted):
        allneg.train(graph, recipe=recipe, out=tmp_path / "cut", stopped_by=stop_after(7))
    Path(file).rename(tmp_path / "moved.csv")  # a run has all that it needs
    assert content(allneg.resume(tmp_path / "cut")) == content(run)
    state = run.last().optimizer  # type: ignore[union-attr]
    row = state["features.rows"][names.index("Portugal")] @ state["features.map"]
    if optimizer == "adagrad":  # the own part is that of the start, as it is a negative only
        assert row.norm() > 0.01
    grown = run.extend(
        [("Monaco", "in", "Europe")], out=tmp_path / "grown",
        settings={"model.features": str(tmp_path / "moved.csv"), "training.epochs": 1},
    )  # fmt: skip
    assert changed(run, grown) == set()
    assert torch.equal(grown.last().optimizer["features.map"], state["features.map"])  # type: ignore[union-attr]
    more = grown.extend(
        [("Monaco", "borders", "France")], out=tmp_path / "more", touch="all", settings=SHORT | {
            "model.features": str(tmp_path / "moved.csv")
        },
    )  # fmt: skip
    assert not torch.equal(more.last().optimizer["features.map"], state["features.map"])  # type: ignore[union-attr]
    assert run.extend([("Rome", "in", "Europe")], out=tmp_path / "known").finished  # no file needed


def test_features_of_known_entities_are_added_to_all_rows(toy_run: Run, tmp_path: Path) -> None:
    names = toy_run.graph.vocabulary.entities
    file = vectors_file(tmp_path / "features.csv", [*names, "Monaco"])
    settings = SHORT | {"model.features": file}
    child = toy_run.extend(FACTS, out=tmp_path / "child", touch="all", settings=settings)
    norms = child.last().optimizer["features.rows"].norm(dim=1)  # type: ignore[union-attr]
    named = [name in (*names, "Monaco") for name in child.graph.vocabulary.entities]
    assert (norms > 0).tolist() == named


def test_features_without_a_map_are_refused(toy_run: Run, tmp_path: Path) -> None:
    file = vectors_file(tmp_path / "features.csv", ["Monaco", "France"])
    with pytest.raises(RecipeError, match="has no map of features"):
        toy_run.extend(FACTS, out=tmp_path / "child", settings={"model.features": file})


@pytest.mark.parametrize("text", ["name,0\nParis,x\n", "name,0\n", "name,0\nNobody,1\n"])
def test_a_bad_file_of_vectors_is_refused(toy_run: Run, tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=r"bad.csv: (not names|has no)"):
        toy_run.extend(FACTS, out=tmp_path / "child", settings={"model.start": str(path)})
    assert not (tmp_path / "child").exists()


def test_the_columns_of_vectors_are_named(toy_run: Run, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "bad.parquet"
    parquet.write_table(pytest.importorskip("pyarrow").table({"entity": ["a"], "v": [[1.0]]}), path)
    with pytest.raises(DataError, match="the columns are entity, v, not name and vector"):
        toy_run.extend(FACTS, out=tmp_path / "child", settings={"model.start": str(path)})


def partial_trainer(recipe: Recipe, graph: Graph, touch: Touch = "new") -> PartialTrainer:
    """A trainer of the last 4 entities and the last relation, if 3 facts are new."""
    parent = Parent(
        "parent", None, touch, graph.n_entities - 4, graph.n_relations - 1, len(graph.train) - 3
    )
    return PartialTrainer(recipe, graph, torch.device("cpu"), SINGLE_PROCESS, parent)


@pytest.mark.parametrize("touch", ["new", "neighbours"])
@pytest.mark.parametrize("model", ["transe", "rotate", "distmult", "complex", "simple", "tucker"])
@pytest.mark.parametrize("name", LOSSES)
def test_fixed_queries_give_the_gradients_of_all_candidates(
    tiny_graph: Graph, quick: Callable[..., Recipe], model: str, name: str, touch: Touch
) -> None:
    margin = () if name == "softmax" else ("loss.margin=1.0",)
    recipe = quick(f"model.name={model}", f"loss.name={name}", "model.scale=0.5", *margin)
    trainer = partial_trainer(recipe, tiny_graph, touch)
    triples = torch.from_numpy(tiny_graph.train)
    _, found = trainer.batches(triples, torch.Generator().manual_seed(0))
    for queries in found:
        assert isinstance(queries, SplitQueries)
        value = trainer.gradients(queries, NegativeSample())
        split = [table.grad.clone() for table in trainer.tables.parameters()]  # type: ignore[union-attr]
        trainer.contrast = trainer._contrast_all
        assert torch.allclose(trainer.gradients(queries, NegativeSample()), value, rtol=1e-5)
        trainer.contrast = trainer._contrast_split
        for table, grad in zip(trainer.tables.parameters(), split, strict=True):
            assert torch.allclose(table.grad, grad, rtol=1e-4, atol=1e-7)  # type: ignore[arg-type]


@pytest.mark.parametrize("touch", ["new", "neighbours"])
@pytest.mark.parametrize(
    "settings",
    [
        ("model.name=complex", "regularizer.weight=0.1"),
        ("model.name=rotate",),
        ("model.name=complex", "loss.mask_known=true", "regularizer.weight=0.1"),
        ("model.name=complex", "loss.name=logistic", "loss.grouped=true"),
    ],
    ids=["fixed queries", "distances", "every query", "grouped"],
)
def test_trained_rows_have_the_gradients_of_training(
    tiny_graph: Graph, quick: Callable[..., Recipe], settings: tuple[str, ...], touch: Touch
) -> None:
    recipe = quick("training.batch_size=1000", "model.scale=0.5", *settings)
    triples = torch.from_numpy(tiny_graph.train)
    some = partial_trainer(recipe, tiny_graph, touch)
    whole = Trainer(recipe, tiny_graph, torch.device("cpu"), SINGLE_PROCESS)
    some.tables.load(whole.tables.weights())
    for trainer in (some, whole):
        n_batches, found = trainer.batches(triples, torch.Generator().manual_seed(0))
        assert n_batches == 1
        trainer.gradients(next(found), NegativeSample())
    for name, table in some.tables.named_parameters():
        expected = whole.tables.get_parameter(name).grad.masked_fill(some._frozen[name], 0.0)
        assert expected.any()
        assert torch.allclose(table.grad, expected, rtol=1e-4, atol=1e-6)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "settings",
    [(), ("loss.mask_known=true",), ("loss.name=logistic", "loss.grouped=true")],
    ids=["fixed queries", "every query", "grouped"],
)
def test_a_sample_of_other_facts_stands_for_all(
    tiny_graph: Graph,
    quick: Callable[..., Recipe],
    monkeypatch: pytest.MonkeyPatch,
    settings: tuple[str, ...],
) -> None:
    monkeypatch.setattr(partial.PartialTrainer, "_n_others", lambda _: 8)
    monkeypatch.setattr(partial, "_NUMBERS", 1)  # a single one in a step
    trainer = partial_trainer(quick("training.batch_size=8", *settings), tiny_graph)
    triples = torch.from_numpy(tiny_graph.train)
    _, found = trainer.batches(triples, torch.Generator().manual_seed(0))
    queries = list(found)
    assert sum(len(some) for some in queries) < 2 * len(triples)
    if not trainer.recipe.loss.grouped:
        total = sum(float(some.weight.sum()) for some in queries)  # type: ignore[union-attr]
        assert total == pytest.approx(2 * len(triples))
        return
    assert trainer.known is not None
    per_query = [
        w
        for some in queries
        for w in some.sums(some.weight) / some.sums(torch.ones_like(some.weight))
    ]  # type: ignore[arg-type]
    assert sum(map(float, per_query)) == pytest.approx(len(trainer.known.keys))


@pytest.mark.parametrize("change", [{}, {"replaced": []}, {"touch": "some"}, {"train": -1}])
def test_a_parent_is_read_back_or_refused(change: dict[str, Any]) -> None:
    parent = Parent("kb", None, "new", 3, 1, 5, (2,), {"training.epochs": 60})
    if not change:
        assert Parent.from_json(parent.to_json()) == parent
        return
    with pytest.raises(ValueError, match="not a parent"):
        Parent.from_json(parent.to_json() | change)
