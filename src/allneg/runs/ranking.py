"""Rank splits with the best weights of runs, and compare two runs."""

from dataclasses import replace
from pathlib import Path

from allneg.evaluation import Report, evaluate_baselines, selection_protocol
from allneg.evaluation import protocol as find_protocol
from allneg.evaluation.compare import Comparison, same_data
from allneg.evaluation.compare import compare as compare_rankings
from allneg.evaluation.ranks import PROTOCOLS, Protocol, Ranking, rank
from allneg.hardware import device_errors, find_device
from allneg.runs.run import Run


def evaluate(
    run: Run | Path | str, split: str = "test", protocol: str = "allneg", device: str = "auto"
) -> Report:
    """Rank every triple of a split from both sides with the best weights of a run.

    `protocol` has the rules for ties, filters and unseen entities: allneg, kbc, libkge or pykeen.
    """
    opened = run if isinstance(run, Run) else Run.open(run)
    rules = find_protocol(protocol)
    if protocol == "allneg":
        rules = selection_protocol(opened.recipe.evaluation)
    report = Report.of(_ranked(opened, split, device, rules), opened.graph)
    return replace(report, baselines=evaluate_baselines(opened.graph, split, rules))


def compare(
    one: Run | Path | str, other: Run | Path | str, split: str = "test", device: str = "auto"
) -> Comparison:
    """Test whether one run ranks better than another on the same data.

    The interval is a bootstrap over triples, and p is from a permutation test that flips signs;
    both use 10,000 samples.
    """
    first, second = (run if isinstance(run, Run) else Run.open(run) for run in (one, other))
    same_data((str(first.folder), str(second.folder)), (first.graph, second.graph))
    ranked = [_ranked(run, split, device, PROTOCOLS["allneg"]) for run in (first, second)]
    return compare_rankings(ranked[0], ranked[1], first.graph)


def _ranked(run: Run, split: str, device: str, rules: Protocol) -> Ranking:
    chosen, block = find_device(device), run.recipe.evaluation.block
    with device_errors(chosen):
        return rank(run.model, run.tables().to(chosen), run.graph, split, rules, block)
