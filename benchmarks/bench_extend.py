"""MRR and seconds of `extend` for held-out entities, beside those of training again.

python benchmarks/bench_extend.py [DATA …] [--models complex,rotate] [--device cuda]
    [--set training.epochs=50] [--set rotate:model.dim=100] [--minutes 5] [--work FOLDER]
    [--out benchmarks/results/NAME.json]

Without DATA: countries. 5 % of the entities and all of their facts are held out, and a run is
trained on the rest. It is extended with 1, 3, 10 or all of each new entity's facts in train, and a
run on the same facts is trained from the start. Both rank the facts of valid and test that have a
new entity; `given_mrr` is the MRR of the given facts. `--retrain` and `--neighbours` name the
numbers of facts for these ways, if not all. With `--entities 10`, only 10 of the held-out entities
are added: the first ones with at least 10 facts that have no other held-out entity. `seconds` are
those of the whole call, with reading, saving and the report; `cpu_seconds` are those of the
process, which other work on the machine changes less; `training_seconds` are those until the last
ranking of valid. `parts` has the seconds of the parts of a call, see `Parts`; on a CPU, these are
those of the process.

`warm` trains on the whole graph from the start, and from a run on 90 % of its train triples; the
seconds and epochs are those until the best validation MRR of the former, less .001, is reached.

What is in --out is not measured again, and finished runs in --work are used again.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from measure import benchmark_parser, machine, write_rows

import allneg
from allneg.evaluation import Report, evaluate
from allneg.graph import SPLITS, Graph, Triples
from allneg.graph.grow import grow
from allneg.hardware import find_device
from allneg.recipe import Recipe
from allneg.runs import Run
from allneg.runs.checkpoint import State
from allneg.scoring import Shard, Tables
from allneg.training.callbacks import Callbacks

MODELS = "transe,rotate,distmult,complex,simple"
TOUCH = {"extend": "new", "neighbours": "neighbours"}
SAME = 0.001  # of MRR, in comparisons of warm starts


def main() -> None:
    parser = benchmark_parser(__doc__)
    parser.add_argument("data", nargs="*", default=["countries"])
    parser.add_argument("--models", default=MODELS)
    parser.add_argument("--ways", default="extend,neighbours,retrain,warm")
    parser.add_argument("--facts", default="1,3,10,all")
    parser.add_argument("--retrain", help="numbers of facts, as in --facts")
    parser.add_argument("--neighbours", help="likewise")
    parser.add_argument("--share", type=float, default=0.05, help="of the entities, held out")
    parser.add_argument("--entities", type=int, help="how many of them to add, if not all")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of held-out entities")
    parser.add_argument("--set", dest="settings", action="append", default=[])
    parser.add_argument("--extend-set", dest="more", action="append", default=[])
    parser.add_argument("--minutes", type=float, help="begin nothing after this time")
    parser.add_argument("--work", type=Path)
    args = parser.parse_args()
    end = time.monotonic() + 60 * (args.minutes or 1e6)
    settings = {"settings": args.settings, "extend_settings": args.more}
    about = {"extend": True, **machine(find_device(args.device)), **settings}
    done = []
    if args.out is not None and args.out.exists():
        done = json.loads(args.out.read_text())["rows"]
    with tempfile.TemporaryDirectory() as folder:
        work = args.work or Path(folder)
        rows = (
            row
            for data in args.data
            for model in args.models.split(",")
            for measure in measurements(data, model, args, work)
            if time.monotonic() < end
            for row in measure([key(row) for row in done])
        )
        write_rows(about, rows, args.out, done)


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in ("data", "model", "way", "facts", "added"))


Measurement = Callable[[list[tuple[Any, ...]]], Iterator[dict[str, Any]]]


def measurements(
    data: str, model: str, args: argparse.Namespace, work: Path
) -> Iterator[Measurement]:
    """What is to be measured on a dataset with a model; each is called with what is done."""
    parts = [setting.partition(":") for setting in args.settings]
    given = [after or before for before, _, after in parts if not after or before == model]
    settings, graph = [*given, f"hardware.device={args.device}"], allneg.read_graph(data)
    split = held_out(graph, args.share, args.seed)
    added = split if args.entities is None else few(split, args.entities)
    name, ways = Path(data).name, args.ways.split(",")
    wanted = {"retrain": args.retrain or args.facts, "neighbours": args.neighbours or args.facts}

    def measure(way: str, facts: str, done: list[tuple[Any, ...]]) -> Iterator[dict[str, Any]]:
        about = {"data": name, "model": model, "way": way, "facts": facts}
        if args.entities is not None:
            about["added"] = args.entities
        if key(about) in done:
            return
        folder = work / f"{name}-{model}"
        if way == "warm":
            yield about | warm(graph, model, settings, folder)
            return
        base = trained(split.base, model, settings, folder)
        new = some_facts(added, None if facts == "all" else int(facts))
        out = work / f"{folder.name}-{facts}{'-few' if args.entities else ''}"
        yield about | extended(base, added, new, way, args.more, out)

    for facts in args.facts.split(","):
        for way in ways:
            if way != "warm" and facts in wanted.get(way, args.facts).split(","):
                yield partial(measure, way, facts)
    if "warm" in ways:
        yield partial(measure, "warm", "all")


def extended(
    base: Run, split: HeldOut, new: Graph, way: str, more: list[str], folder: Path
) -> dict[str, Any]:
    """One way to add facts to a run: MRR before and after, and seconds."""
    out, graph = folder.with_name(f"{folder.name}-{way}"), split.graph
    on_cpu = find_device(base.recipe.hardware.device).type == "cpu"
    parts = Parts(time.process_time if on_cpu else time.perf_counter)
    began, cpu = time.perf_counter(), time.process_time()
    if way == "retrain":
        whole = grow(split.base, new, None).graph
        child = allneg.train(whole, recipe=base.recipe, out=out, callbacks=parts)
    else:
        run = Run.open(base.folder)
        child = run.extend(new, out=out, touch=TOUCH[way], settings=more, callbacks=parts)
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu
    valid = [[m["epoch"], m["valid"]["mrr"]] for m in child.metrics() if "valid" in m]
    return {
        "dim": base.recipe.model.dim, "epochs": child.metrics()[-1]["epoch"],
        "entities": child.graph.n_entities - split.base.n_entities,
        "given": len(new.train), "ranked": len(split.ranked),
        "mrr": mrr(child, child.tables(), graph, split.ranked),
        "given_mrr": mrr(child, child.tables(), graph, of_graph(new, graph)),
        "old_mrr": mrr(child, child.tables(), graph, split.old),
        "old_mrr_among_old": mrr(base, old_part(base, child), graph, split.old),
        "old_mrr_before": mrr(base, base.tables(), graph, split.old),
        "old_rows_unchanged": is_unchanged(base, child),
        "seconds": seconds, "cpu_seconds": cpu_seconds, "parts": parts.seconds,
        "training_seconds": child.metrics()[-1]["seconds"], "valid": valid[-5:],
    }  # fmt: skip


class Parts(Callbacks):
    """Seconds of the parts of a call by a clock, until its last report."""

    def __init__(self, clock: Callable[[], float]) -> None:
        names = ("load", "prepare", "first step", "steps", "rank valid", "save", "rank test")
        self.seconds = dict.fromkeys(names, 0.0)
        self._clock, self._last = clock, clock()

    def _end(self, name: str) -> None:
        now = self._clock()
        self.seconds[name] += now - self._last
        self._last = now

    def on_run(self, run: Run) -> None:
        self._end("load")  # the parent or the graph; the files of the graph are written

    def on_start(self, epochs: int) -> None:
        self._end("prepare")  # tables on the device

    def on_step(self, state: State, n_steps: int) -> None:
        # The first one comes after the scores of other facts; it compiles and allocates.
        self._end("steps" if self.seconds["first step"] else "first step")

    def on_evaluation(self, state: State, report: Report) -> None:
        self._end("rank valid")

    def on_epoch(self, metrics: Mapping[str, Any]) -> None:
        self._end("rank valid")

    def on_save(self, state: State) -> None:
        self._end("save")

    def on_end(self, report: Report | None) -> None:
        self._end("rank test")  # and calibrate; a retraining also ranks with baselines


def trained(
    graph: Graph, model: str, settings: list[str], folder: Path, recipe: Recipe | None = None
) -> Run:
    """The run in a folder, trained if it is not there."""
    if (folder / "run.json").exists():
        return allneg.resume(folder)
    return allneg.train(graph, model=model, recipe=recipe, settings=settings, out=folder)


@dataclass(frozen=True)
class HeldOut:
    """A graph without some of its entities; triples have the ids of the whole graph."""

    graph: Graph  # the whole one
    base: Graph
    is_new: npt.NDArray[np.bool_]  # (N,)
    new: Triples  # facts of train with a new entity
    ranked: Triples  # facts of valid and test with a new entity
    old: Triples  # facts of test without one


def held_out(graph: Graph, share: float, seed: int = 0) -> HeldOut:
    order = np.random.default_rng(seed).permutation(np.flatnonzero(graph.seen))
    is_new = np.zeros(graph.n_entities, dtype=np.bool_)
    is_new[order[: max(1, int(share * len(order)))]] = True
    parts = {split: graph.split(split) for split in SPLITS}
    has_new = {split: is_new[some[:, [0, 2]]].any(1) for split, some in parts.items()}
    names = {split: named(some[~has_new[split]], graph) for split, some in parts.items()}
    base = replace(allneg.read_graph(names), name=graph.name)
    known = is_new | np.isin(graph.vocabulary.entities, base.vocabulary.entities)
    ranked = np.concatenate([parts[split][has_new[split]] for split in ("valid", "test")])
    ranked = ranked[known[ranked[:, [0, 2]]].all(1)]
    new, old = parts["train"][has_new["train"]], parts["test"][~has_new["test"]]
    return HeldOut(graph, base, is_new, new, ranked, old)


def few(split: HeldOut, n: int) -> HeldOut:
    """With so many of the held-out entities: the first with 10 facts without another one."""
    parts = [split.new, split.ranked]
    alone = [part[split.is_new[part[:, [0, 2]]].sum(1) == 1] for part in parts]
    count = np.bincount(alone[0][:, [0, 2]].ravel(), minlength=len(split.is_new))
    is_new = np.zeros_like(split.is_new)
    is_new[np.flatnonzero(split.is_new & (count >= 10))[:n]] = True
    new, ranked = (part[is_new[part[:, [0, 2]]].any(1)] for part in alone)
    return replace(split, is_new=is_new, new=new, ranked=ranked)


def some_facts(split: HeldOut, most: int | None) -> Graph:
    """At most so many facts of each new entity in train, in a random order."""
    train, is_new = np.random.default_rng(1).permutation(split.new), split.is_new
    count, kept = np.zeros(len(is_new), dtype=np.int64), []
    for fact in train.tolist():
        ends = [entity for entity in {fact[0], fact[2]} if is_new[entity]]
        if most is None or any(count[entity] < most for entity in ends):
            kept.append(fact)
            count[ends] += 1
    return allneg.read_graph({"train": named(np.array(kept), split.graph)})


def named(triples: Triples, graph: Graph) -> list[tuple[str, str, str]]:
    entities, relations = graph.vocabulary.entities, graph.vocabulary.relations
    return [(entities[h], relations[r], entities[t]) for h, r, t in triples.tolist()]


def of_graph(facts: Graph, graph: Graph) -> Triples:
    """The triples of train of some facts, with the ids of the whole graph."""
    ids, relations = graph.vocabulary.entity_ids, graph.vocabulary.relation_ids
    found = [(ids[h], relations[r], ids[t]) for h, r, t in named(facts.train, facts)]
    return np.array(found, dtype=np.int64)


def mrr(run: Run, tables: Tables, graph: Graph, ranked: Triples) -> float:
    """The MRR of facts of the whole graph among the run's entities, filtered by all facts."""
    names, device = run.graph.vocabulary, find_device(run.recipe.hardware.device)

    def ids(triples: Triples) -> Triples:
        found = [
            [
                names.entity_ids.get(h, -1),
                names.relation_ids.get(r, -1),
                names.entity_ids.get(t, -1),
            ]
            for h, r, t in named(triples, graph)
        ]
        known = np.array(found, dtype=np.int64).reshape(-1, 3)
        return known[(known >= 0).all(1)]

    known = np.concatenate([graph.split(split) for split in SPLITS])
    asked = replace(run.graph, valid=ids(known), test=ids(ranked))
    return evaluate(run.model, tables.to(device), asked, "test").mrr


def old_part(base: Run, child: Run) -> Tables:
    """The rows that a child has for the names of its base, which are the first ones."""
    tables, n, n_relations = child.tables(), base.graph.n_entities, base.graph.n_relations
    sides = tables.relations.detach().split(tables.n_relations)
    relations = torch.cat([side[:n_relations] for side in sides])
    rows = tables.entities.detach()[:n]
    return Tables(rows, relations, Shard.whole(n), tables.reciprocal, tables.shared)


def is_unchanged(base: Run, child: Run) -> bool:
    """Whether the old entities have the same rows, and so the same ranks among each other."""
    old = base.tables().entities
    return torch.equal(old, child.tables().entities[: len(old)])


def warm(graph: Graph, model: str, settings: list[str], folder: Path) -> dict[str, Any]:
    """Seconds from the start, and from a run on 90 % of train, to the same validation MRR."""
    order = np.random.default_rng(2).permutation(len(graph.train))
    most = np.sort(order[: int(0.9 * len(order))])
    earlier = {"train": named(graph.train[most], graph), "valid": named(graph.valid, graph)}
    fresh = trained(graph, model, settings, folder.with_name(f"{folder.name}-fresh"))
    first = trained(
        allneg.read_graph(earlier), model, settings,
        folder.with_name(f"{folder.name}-90"), fresh.recipe,
    )  # fmt: skip
    again = folder.with_name(f"{folder.name}-warm")
    if not (again / "run.json").exists():
        allneg.train(graph, out=again, start=first)
    curves = [
        [(m["valid"]["mrr"], m["seconds"], m["epoch"]) for m in run.metrics() if "valid" in m]
        for run in (fresh, Run.open(again))
    ]
    best = max(curves[0])[0]
    reached = [next((at for at in curve if at[0] >= best - SAME), (None,) * 3) for curve in curves]
    return {
        "dim": fresh.recipe.model.dim, "mrr": best, "retrain_seconds": reached[0][1],
        "retrain_epochs": reached[0][2], "seconds": reached[1][1], "epochs": reached[1][2],
        "best_mrr": max(curves[1])[0],
    }  # fmt: skip


if __name__ == "__main__":
    main()
