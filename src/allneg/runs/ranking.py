"""Rank splits with the best weights of runs, and compare two runs."""

from dataclasses import replace
from pathlib import Path

from allneg.evaluation import Report, Within, evaluate_baselines, selection_protocol
from allneg.evaluation import protocol as find_protocol
from allneg.evaluation.compare import Comparison, same_data
from allneg.evaluation.compare import compare as compare_rankings
from allneg.evaluation.ranks import PROTOCOLS, Protocol, Ranking, rank
from allneg.hardware import device_errors, find_device
from allneg.runs.run import Run


def evaluate(
    run: Run | Path | str,
    split: str = "test",
    protocol: str = "allneg",
    device: str = "auto",
    within: str | None = None,
) -> Report:
    """Rank every triple of a split from both sides with the best weights of a run.

    `protocol` selects the rules for ties, filters and unseen entities: allneg, kbc, libkge or
    pykeen. `within` restricts the candidates: "seen", "type=RELATION:OBJECT" or a file of
    entities.
    """
    opened = run if isinstance(run, Run) else Run.open(run)
    rules = find_protocol(protocol)
    if protocol == "allneg":
        rules = selection_protocol(opened.recipe.evaluation)
    report = Report.of(_ranked(opened, split, device, rules, within), opened.graph)
    if within is not None:  # baselines would have other candidates
        return report
    if (calibration := opened.calibration) is not None:
        report = replace(report, calibration=calibration.to_json())
    return replace(report, baselines=evaluate_baselines(opened.graph, split, rules))


def compare(
    one: Run | Path | str, other: Run | Path | str, split: str = "test", device: str = "auto"
) -> Comparison:
    """Test whether one run ranks better than another on the same data.

    The interval is a bootstrap over triples, and p comes from a permutation test that flips signs;
    both use 10,000 samples.
    """
    first, second = (run if isinstance(run, Run) else Run.open(run) for run in (one, other))
    same_data((str(first.folder), str(second.folder)), (first.graph, second.graph))
    ranked = [_ranked(run, split, device, PROTOCOLS["allneg"]) for run in (first, second)]
    return compare_rankings(ranked[0], ranked[1], first.graph)


def _ranked(
    run: Run, split: str, device: str, rules: Protocol, within: str | None = None
) -> Ranking:
    chosen, block = find_device(device), run.recipe.evaluation.block
    with device_errors(chosen):
        tables = run.tables().to(chosen)
        allowed = None if within is None else Within.parse(within, run.graph, chosen)
        return rank(run.model, tables, run.graph, split, rules, block, allowed)
