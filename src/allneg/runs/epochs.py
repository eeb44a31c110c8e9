"""metrics.jsonl: one line per epoch, appended during training."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from allneg.errors import RunError
from allneg.evaluation.report import is_number
from allneg.runs.files import read_errors


def read_epochs(path: Path) -> list[dict[str, Any]]:
    """The entries of a file, which need not exist yet."""
    try:
        with read_errors(path):
            lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        # A line without its end was cut by a full disk or a kill; that epoch is trained again.
        entries = [json.loads(line) for line in lines if line.endswith("\n")]
    except ValueError as error:
        raise RunError(f"{path}: not JSON lines ({error}); the file is damaged") from None
    if not all(map(_is_epoch, entries)):
        raise RunError(f"{path}: a line is not an epoch's entry; the file is damaged")
    return entries


def best_of(entries: Iterable[Mapping[str, Any]]) -> tuple[float | None, int | None]:
    """The best validation MRR and its epoch; among equals the first, whose weights were kept."""
    ranked = [(entry["valid"]["mrr"], entry["epoch"]) for entry in entries if "valid" in entry]
    return max(ranked, key=lambda pair: pair[0], default=(None, None))


def _is_epoch(entry: Any) -> bool:
    """Does an entry have the fields that are read?"""
    if not isinstance(entry, dict) or type(entry.get("epoch")) is not int:
        return False
    valid = entry.get("valid", {"mrr": 0.0})
    return (
        is_number(entry.get("seconds")) and isinstance(valid, dict) and is_number(valid.get("mrr"))
    )
