"""Runs that are written at once and not trained: ensembles, converted vectors, bfloat16 copies."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from allneg.evaluation import (
    Report,
    calibrate,
    evaluate,
    evaluate_baselines,
    selection_protocol,
)
from allneg.graph.graph import Graph
from allneg.hardware import device_errors, find_device
from allneg.models import Model
from allneg.recipe import Evaluation
from allneg.runs import checkpoint, files, folder
from allneg.runs.run import Run
from allneg.scoring import Tables


def write_finished(
    run: Run, graph: Graph, weights: Mapping[str, Tensor], report: Report | None
) -> Run:
    """Write the folder of a run with these weights, and return it with its id."""
    size = sum(tensor.nbytes for tensor in weights.values())
    files.need_bytes(folder.existing_parent(run.folder), size)
    return run.write(graph, checkpoint.Checkpoint(checkpoint.State(), weights, {}), report)


def evaluated(
    model: Model, tables: Tables, graph: Graph, settings: Evaluation, split: str = "test"
) -> Report | None:
    """The report on a split, or on valid if the split is empty; None without both."""
    split, rules = split if len(graph.split(split)) else "valid", selection_protocol(settings)
    if not len(graph.split(split)):
        return None
    report = evaluate(model, tables, graph, split, rules, settings.block)
    learned = calibrate(model, tables, graph)
    return replace(
        report,
        baselines=evaluate_baselines(graph, split, rules),
        calibration=learned.to_json() if learned else {},
    )


def export_bf16(run: Run, out: Path, device: str = "auto") -> Run:
    """Write a copy of a run with its best weights in bfloat16, and without the optimizer's state.

    Its report is that of the rounded weights, on the split of the report of the run.
    """
    folder.check_new(out)
    old, tables, chosen = run.report, run.tables(), find_device(device)
    split = old.protocol["split"]
    weights = {name: tensor.to(torch.bfloat16) for name, tensor in tables.weights().items()}
    with device_errors(chosen):
        tables.load({name: tensor.float() for name, tensor in weights.items()})
        report = evaluated(run.model, tables.to(chosen), run.graph, run.recipe.evaluation, split)
    made = Run(out, run.recipe, members=run.members, is_trainable=False, parents=run.parents)
    kept = None if report is None else replace(report, ensemble=old.ensemble)
    return write_finished(made, run.graph, weights, kept)
