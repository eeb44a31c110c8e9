"""metrics.jsonl: a line an epoch, added as training goes on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from allneg.errors import RunError
from allneg.evaluation.report import is_number
from allneg.runs.files import unreadable_named


def read_epochs(path: Path) -> list[dict[str, Any]]:
    """The entries of a file, which need not be there yet."""
    try:
        with unreadable_named(path):
            lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        # A line without its end was cut by a full disk or a kill; its epoch is trained again.
        found = [json.loads(line) for line in lines if line.endswith("\n")]
    except ValueError as error:
        raise RunError(f"{path}: not JSON lines ({error}); the file is damaged") from None
    if not all(map(_is_epoch, found)):
        raise RunError(f"{path}: a line is no epoch's; the file is damaged")
    return found


def best_of(entries: Iterable[Mapping[str, Any]]) -> tuple[float | None, int | None]:
    """The best valid MRR and its epoch; of equal ones the first, whose weights were kept."""
    ranked = [(each["valid"]["mrr"], each["epoch"]) for each in entries if "valid" in each]
    return max(ranked, key=lambda each: each[0], default=(None, None))


def _is_epoch(said: Any) -> bool:
    """Is this what a training noted of an epoch, as far as anybody reads it?"""
    if not isinstance(said, dict) or type(said.get("epoch")) is not int:
        return False
    valid = said.get("valid", {"mrr": 0.0})
    mrr = valid.get("mrr") if isinstance(valid, dict) else None
    return is_number(said.get("seconds")) and is_number(mrr)
