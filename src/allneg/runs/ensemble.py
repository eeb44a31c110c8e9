"""`ensemble`: several runs on the same data become one run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from allneg.errors import DataError, UsageError
from allneg.evaluation import evaluate, evaluate_baselines, selection_protocol
from allneg.evaluation.compare import same_data
from allneg.evaluation.ensemble import (
    Weighting,
    choose_weights,
    reciprocal_ranks,
    score_spread,
    weight_grid,
)
from allneg.graph.graph import Graph
from allneg.graph.queries import SIDES
from allneg.hardware import device_errors, find_device
from allneg.models.ensemble import Ensemble, combined
from allneg.runs import folder
from allneg.runs.about import Member
from allneg.runs.finished import write_finished
from allneg.runs.run import Run
from allneg.scoring import Shard, Tables


def ensemble(runs: Iterable[Path | str], *, out: Path | str, device: str = "auto") -> Run:
    """Combine runs on the same data into a new run in the folder `out`.

    Its score is a weighted sum of the members' scores, with weights per relation and side that
    have the best MRR on valid. The weights of the members are copied, so the new run does not need
    them. After its weights are chosen, it is ranked on test like a trained run.
    """
    opened = [Run.open(run) for run in runs]
    out = Path(out)
    graph = _check(opened)
    folder.check_new(out)
    chosen = find_device(device)
    with device_errors(chosen):
        weights = [(run.model, run.tables().to(chosen).requires_grad_(False)) for run in opened]
        spreads = [score_spread(*member, graph) for member in weights]
        models, reciprocal = zip(*((m, t.reciprocal) for m, t in weights), strict=True)
        model = Ensemble.of(models, reciprocal, spreads)
        grid, settings = weight_grid(len(opened)), opened[0].recipe.evaluation
        rules = selection_protocol(settings)
        coefficients = model.coefficients(torch.from_numpy(grid).float())
        found = choose_weights(
            reciprocal_ranks(weights, coefficients, graph, rules, settings.block), grid, graph
        )
        tables = join([t for _, t in weights], model, torch.from_numpy(found.weights).float())
        split = "test" if len(graph.test) else "valid"
        report = evaluate(model, tables, graph, split, rules, settings.block)
    about = _describe(opened, graph, found)
    baselines = evaluate_baselines(graph, split, rules)
    report = replace(report, baselines=baselines, ensemble=about)
    members = [
        Member(run.folder.resolve().name, run.recipe, s)
        for run, s in zip(opened, spreads, strict=True)
    ]
    made = Run(out, opened[0].recipe, members=tuple(members), is_trainable=False)
    return write_finished(made, graph, tables.weights(), report)


def _check(runs: list[Run]) -> Graph:
    """The graph of all runs; an error if they cannot be combined."""
    if len(runs) < 2:
        raise UsageError("an ensemble needs at least two runs")
    for run in runs:
        if run.members:
            raise UsageError(f"{run.folder}: is an ensemble; give its members instead")
        same_data((str(runs[0].folder), str(run.folder)), (runs[0].graph, run.graph))
    graph = runs[0].graph
    if not len(graph.valid):
        raise DataError(f"{graph.name}: has no valid triples, by which weights are chosen")
    return graph


def join(tables: list[Tables], model: Ensemble, weights: Tensor) -> Tables:
    """The rows of the members side by side, and their weights: (R, 2, M)."""
    relations = []
    for member, own in zip(model.members, tables, strict=True):
        rows = combined(member, own.relations.detach(), own.shared)
        relations.append(rows if own.reciprocal else torch.cat([rows, rows]))
    weights = weights.transpose(0, 1).flatten(0, 1).to(relations[0].device)  # tails, then heads
    entities = torch.cat([own.entities.detach() for own in tables], dim=1)
    whole = Shard.whole(len(entities))
    return Tables(entities, torch.cat([*relations, weights], dim=1), whole, reciprocal=True)


def _describe(runs: list[Run], graph: Graph, found: Weighting) -> dict[str, Any]:
    """What the report says about the members and their weights."""
    names = graph.vocabulary.relations
    return {
        "members": [
            {"run": run.folder.resolve().name, "model": run.model_name, "valid_mrr": mrr}
            for run, mrr in zip(runs, found.member_mrrs, strict=True)
        ],
        "valid_mrr": found.mrr,
        "valid_mrr_of_one_weighting": found.overall_mrr,
        "selection": selection_protocol(runs[0].recipe.evaluation).in_words("valid"),
        "weights": found.overall.tolist(),
        # Only the relations and sides with other weights.
        "by_relation": {
            name: sides
            for name, rows in zip(names, found.weights, strict=True)
            if (
                sides := {
                    side: row.tolist()
                    for side, row in zip(SIDES, rows, strict=True)
                    if (row != found.overall).any()
                }
            )
        },
    }
