from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "reliability_table.py"
MAY_BE_MISSING = {36, 37, 38, 39, 40}  # proved by the tests of tuning and serve


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


def test_the_table_of_cases_is_up_to_date(script: dict[str, Any]) -> None:
    text = script["PAGE"].read_text()
    assert script["page"](text) == text, "run python scripts/reliability_table.py"


def test_every_case_has_a_test(script: dict[str, Any]) -> None:
    assert set(script["CASES"]) - set(script["proofs"]()) <= MAY_BE_MISSING


def test_a_case_without_a_test_is_marked(script: dict[str, Any]) -> None:
    rows = [line for line in script["table"]().splitlines() if line.startswith("| ")][1:]
    missing = set(script["CASES"]) - set(script["proofs"]())
    marked = {int(row.split("|")[1]) for row in rows if "*not yet*" in row}
    assert marked == missing
    assert len(rows) == len(script["CASES"])
