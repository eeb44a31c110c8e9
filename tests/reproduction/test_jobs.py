"""The jobs in benchmarks/gpu_cells.tsv train all cells."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import click
from reproduction.__main__ import ROOT
from reproduction.trials import read_trials

from allneg.cli.reproduce import reproduce_command
from allneg.reproduce import CELLS, SEEDS, UNAVAILABLE, Cell, select

LINES = (ROOT / "benchmarks" / "gpu_cells.tsv").read_text().splitlines()
JOBS = [line.split("\t") for line in LINES if not line.startswith("#")]


def options(program: str) -> Iterator[tuple[str, list[str]]]:
    """The lane and the arguments of each job that runs a program."""
    for lane, _, command in JOBS:
        _, found, after = command.partition(f"python3 -m {program} ")
        if found:
            yield lane, re.sub(r"\$\(left \d+\)", "60", after).split()


def parse(arguments: list[str]) -> dict[str, Any]:
    context: click.Context = reproduce_command.make_context("reproduce", arguments)
    return context.params


def test_all_seeds_of_all_cells_are_trained() -> None:
    trained, lanes, folders = set(), dict[tuple[Cell, str], set[str]](), dict[str, set[str]]()
    for lane, arguments in options("allneg reproduce"):
        chosen = parse(arguments)
        results = str(chosen["results"])
        folders.setdefault(str(chosen["runs"]), set()).add(lane)
        for cell in select(chosen["parts"], chosen["datasets"], chosen["rows"]):
            trained |= {(cell, seed) for seed in chosen["seeds"]}
            lanes.setdefault((cell, results), set()).add(lane)
    cells = [cell for cell in CELLS if cell.data not in UNAVAILABLE]
    assert trained == {(cell, seed) for cell in cells for seed in SEEDS}
    # No two processes write the same file or need the same lock.
    assert all(len(found) == 1 for found in (*lanes.values(), *folders.values()))


def test_the_members_of_an_ensemble_are_trained_by_the_same_job() -> None:
    for _, arguments in options("allneg reproduce"):
        chosen = parse(arguments)
        found = select(chosen["parts"], chosen["datasets"], chosen["rows"])
        names = {cell.name for cell in found}
        assert all({member.name for member in cell.members} <= names for cell in found)


def test_the_trials_of_the_jobs_exist() -> None:
    known, lanes = {trial.cell.name for trial in read_trials()}, dict[str, set[str]]()
    for lane, arguments in options("reproduction.trials"):
        for name in arguments[arguments.index("--cells") + 1].split(","):
            assert name in {cell.name for cell in CELLS}
            lanes.setdefault(name, set()).add(lane)
    assert lanes.keys() >= known
    assert all(len(found) == 1 for found in lanes.values())


def test_every_job_has_its_own_name() -> None:
    assert len({name for _, name, _ in JOBS}) == len(JOBS)
