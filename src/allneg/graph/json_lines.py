"""JSON lines → names: one object per line."""

import json
from collections.abc import Iterator
from typing import IO, Any

from allneg.errors import printable
from allneg.graph.blocks import BadRows, Block, Found, checked, need_layout
from allneg.graph.lines import whole_lines
from allneg.recipe import Data


def read_json_lines(stream: IO[bytes], where: str, settings: Data, found: Found) -> Iterator[Block]:
    """The names in a file with one JSON object per line."""
    bad, layout, keys, n_lines = BadRows(settings), None, list[str](), 0
    for block in whole_lines(stream):
        rows: list[dict[str, Any]] = []
        numbers = []
        for number, line in enumerate(block.split(b"\n"), n_lines + 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            if isinstance(row, dict):
                rows.append(row)
                numbers.append(number)
            else:
                text = printable(line.decode(errors="replace"))
                message = "expected a JSON object with head, relation, tail; found"
                bad.skip("not a JSON object", f"{where}:{number}: {message} {text}")
        n_lines += block.count(b"\n")
        if layout is None and rows:
            keys = list(rows[0])
            layout = need_layout(keys, found, where, settings)
        if layout is not None:
            columns = [[row.get(keys[i]) for row in rows] for i in layout if i is not None]
            weights = columns[3] if len(columns) > 3 else None
            yield checked(columns[:3], weights, where, numbers, bad)
    bad.note(where, found)
