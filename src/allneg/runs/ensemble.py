"""`ensemble`: several runs on the same data become one run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from allneg.errors import DataError, UsageError
from allneg.evaluation import selection_protocol
from allneg.evaluation.compare import same_data
from allneg.evaluation.counts import count_facts
from allneg.evaluation.ensemble import (
    Weighting,
    choose_weights,
    reciprocal_ranks,
    score_spread,
    weight_grid,
)
from allneg.graph.queries import SIDES
from allneg.hardware import device_errors, find_device
from allneg.models import Model
from allneg.models.counts import Counts
from allneg.models.ensemble import Ensemble, combined
from allneg.recipe import Recipe
from allneg.runs import folder
from allneg.runs.about import Member
from allneg.runs.finished import evaluated, write_finished
from allneg.runs.run import Run
from allneg.scoring import Shard, Tables

COUNTS = "counts"  # the name of the member that is counted


@dataclass(frozen=True)
class Combination:
    """Runs on the same data, with the weights that valid has chosen. Test is not ranked yet."""

    runs: list[Run]
    members: tuple[Member, ...]
    model: Ensemble
    tables: list[Tables]  # of the members
    weighting: Weighting

    def write(self, out: Path | str) -> Run:
        """Rank test, or valid if test is empty, and write the ensemble to the new folder `out`."""
        graph, settings = self.runs[0].graph, self.runs[0].recipe.evaluation
        device = self.tables[0].device
        with device_errors(device):
            weights = torch.from_numpy(self.weighting.weights).float()
            tables = join(self.tables, self.model, weights)
            report = evaluated(self.model, tables, graph, settings)
        assert report is not None  # valid has triples
        report = replace(report, ensemble=self._describe())
        run = Run(Path(out), self.runs[0].recipe, members=self.members, is_trainable=False)
        return write_finished(run, graph, tables.weights(), report)

    def _describe(self) -> dict[str, Any]:
        """What the report says about the members and their weights."""
        found, names = self.weighting, self.runs[0].graph.vocabulary.relations
        return {
            "members": [
                {"run": member.name, "model": member.model_name, "valid_mrr": mrr}
                for member, mrr in zip(self.members, found.member_mrrs, strict=True)
            ],
            "valid_mrr": found.mrr,
            "valid_mrr_of_one_weighting": found.overall_mrr,
            "valid_mrr_cross_fitted": found.cross_fitted_mrr,
            "selection": selection_protocol(self.runs[0].recipe.evaluation).in_words("valid"),
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


def ensemble(
    runs: Path | str | Iterable[Path | str],
    *,
    out: Path | str,
    device: str = "auto",
    counts: bool = False,
) -> Run:
    """Combine runs on the same data into a new run in the folder `out`.

    Its score is a weighted sum of the members' scores, with weights per relation and side that
    have the best MRR on valid. The weights of the members are copied, so the new run does not need
    them. After its weights are chosen, it is ranked on test like a trained run. With `counts`, one
    more member lowers the scores of entities that already have their only fact of a relation.
    """
    opened = [Run.open(run) for run in ([runs] if isinstance(runs, str | Path) else runs)]
    check_members(opened, counts)
    folder.check_new(Path(out))
    return combine(opened, find_device(device), counts).write(out)


def combine(runs: list[Run], device: torch.device, counts: bool) -> Combination:
    """Choose the weights of an ensemble by valid."""
    graph, settings = runs[0].graph, runs[0].recipe.evaluation
    named = [(run.folder.resolve().name, run.recipe) for run in runs]
    found: list[tuple[Model, Tables]] = [(run.model, run.tables()) for run in runs]
    if counts:
        counted, rows = count_facts(graph, max(model.entity_width for model, _ in found) // 2)
        found.append((counted, rows))
        named.append((COUNTS, _recipe_of(counted)))
    with device_errors(device):
        weights = [(model, tables.to(device).requires_grad_(False)) for model, tables in found]
        spreads = [score_spread(*member, graph) for member in weights[: len(runs)]]
        spreads += [1.0] * (len(weights) - len(runs))  # not used
        models, reciprocal = zip(*((m, t.reciprocal) for m, t in weights), strict=True)
        model = Ensemble.of(models, reciprocal, spreads)
        grid = weight_grid(len(runs), counts)
        coefficients = model.coefficients(torch.from_numpy(grid).float())
        ranks = reciprocal_ranks(
            weights, coefficients, graph, selection_protocol(settings), settings.block
        )
    members = tuple(
        Member(*about, spread, is_counted=isinstance(own, Counts))
        for about, spread, own in zip(named, spreads, models, strict=True)
    )
    chosen = choose_weights(ranks, grid, graph)
    return Combination(runs, members, model, [tables for _, tables in weights], chosen)


def _recipe_of(counted: Counts) -> Recipe:
    """The recipe of a CP with the same shapes."""
    return Recipe().with_settings({"model.name": "cp", "model.dim": counted.dim})


def check_members(runs: list[Run], counts: bool = False) -> None:
    """An error if runs cannot be combined."""
    if len(runs) < (1 if counts else 2):
        raise UsageError("an ensemble needs at least two runs, or one run and counts")
    for run in runs:
        if run.members:
            raise UsageError(f"{run.folder}: is an ensemble; give its members instead")
        same_data((str(runs[0].folder), str(run.folder)), (runs[0].graph, run.graph))
    if not len(runs[0].graph.valid):
        name = runs[0].graph.name
        raise DataError(f"{name}: has no valid triples, by which weights are chosen")


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
