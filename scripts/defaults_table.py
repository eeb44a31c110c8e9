"""Write the table of default settings into docs/models.md.

python scripts/defaults_table.py
"""

from __future__ import annotations

import re
from pathlib import Path

from allneg.models import MODELS

PAGE = Path(__file__).parents[1] / "docs" / "models.md"
_TABLE = re.compile(r"(<!-- defaults -->\n).*?(<!-- end of defaults -->)", re.DOTALL)


def page(text: str) -> str:
    """The page with the table of today's defaults."""
    head = "\n| model | settings | N3 weight |\n|---|---|---|\n"
    rows = (
        f"| `{name}` | {', '.join(f'`{setting}`' for setting in model.defaults)} | "
        f"{f'{model.n3:g} · w' if model.n3 else 'no N3'} |\n"
        for name, model in MODELS.items()
    )
    return _TABLE.sub(lambda match: match[1] + head + "".join(rows) + "\n" + match[2], text)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
