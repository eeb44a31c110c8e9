"""Execute the notebooks and keep their outputs; write them as pages of the documentation.

python scripts/notebooks.py [NAME…]

A notebook is executed in this process, in an empty folder, and may take five minutes. Outputs are
what Jupyter would show: printed text, the value of the last line of a cell, and figures of
matplotlib.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

MOST_SECONDS = 300
FOLDER = Path(__file__).parents[1] / "notebooks"
PANDAS = re.compile(r"<style.*?</style>|</?div>| border=.*?(?=>)", re.DOTALL)  # its own style


def pages() -> dict[str, Path]:
    """The notebook of every page."""
    return {f"{path.stem}.md": path for path in sorted(FOLDER.glob("*.ipynb"))}


def execute(notebook: dict[str, Any]) -> None:
    """Run all cells in order and replace their outputs."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    _figures()  # closes those of others
    count = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            count += 1
            cell["execution_count"] = count
            cell["outputs"] = _run("".join(cell["source"]), namespace, count)


def _run(source: str, namespace: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """The outputs of one cell."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    value, printed = None, io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, f"cell {count}", "exec"), namespace)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"cell {count}", "eval"), namespace)
    out: list[dict[str, Any]] = []
    if printed.getvalue():
        out.append({"name": "stdout", "output_type": "stream", "text": _lines(printed.getvalue())})
    if value is not None and not source.rstrip().endswith(";"):
        data = {"text/plain": _lines(repr(value))}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = _lines(value._repr_html_())
        result = {"data": data, "execution_count": count, "metadata": {}}
        out.append({**result, "output_type": "execute_result"})
    return out + [
        {"data": {"image/png": image}, "metadata": {}, "output_type": "display_data"}
        for image in _figures()
    ]


def _figures() -> list[str]:
    """The open figures as base64 of PNG; they are closed."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    images = []
    for number in pyplot.get_fignums() if pyplot else []:
        file = io.BytesIO()
        figure = pyplot.figure(number)
        figure.savefig(file, dpi=96, bbox_inches="tight", metadata={"Software": None})
        pyplot.close(figure)
        images.append(base64.b64encode(file.getvalue()).decode() + "\n")
    return images


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def write_pages(folder: Path, relink: Callable[[str, Path], str]) -> None:
    """Write every notebook with its outputs as a Markdown page, its figures and a download.

    `relink` changes the links in a text of a file.
    """
    (folder / "notebooks").mkdir()
    for name, path in pages().items():
        notebook = json.loads(path.read_text())
        title, *parts = [
            _code(cell) if cell["cell_type"] == "code" else relink("".join(cell["source"]), path)
            for cell in notebook["cells"]
        ]
        for n, image in enumerate(images(notebook), start=1):
            png = f"notebooks/{path.stem}-{n}.png"
            (folder / png).write_bytes(base64.b64decode(image))
            parts = [part.replace(image, png) for part in parts]
        download = f"[Download this page as a notebook](notebooks/{path.name})"
        (folder / "notebooks" / path.name).write_text(path.read_text())
        (folder / name).write_text("\n\n".join([title, download, *parts]) + "\n")


def images(notebook: dict[str, Any]) -> list[str]:
    outputs = [out for cell in notebook["cells"] for out in cell.get("outputs", [])]
    return [out["data"]["image/png"] for out in outputs if "image/png" in out.get("data", {})]


def _code(cell: dict[str, Any]) -> str:
    """Code and its outputs in Markdown; images are base64 where a link belongs."""
    source = "".join(cell["source"])
    out = [f"```python\n{source}\n```"]
    for output in cell["outputs"]:
        data = output.get("data", {})
        if "image/png" in data:
            out.append(f"![Output of the code above]({data['image/png']})")
        elif "text/html" in data:
            out.append(PANDAS.sub("", "".join(data["text/html"])))
        else:
            text = "".join(output.get("text") or data["text/plain"])
            out.append(f"```\n{text.strip()}\n```")
    return "\n\n".join(out)


def main(names: list[str]) -> None:
    os.environ.setdefault("MPLBACKEND", "agg")
    for path in [FOLDER / f"{name}.ipynb" for name in names] or pages().values():
        notebook, start = json.loads(path.read_text()), time.monotonic()
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            execute(notebook)
        seconds = time.monotonic() - start
        if seconds > MOST_SECONDS:
            sys.exit(f"{path.name}: {seconds:.0f} s of at most {MOST_SECONDS}")
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")
        print(f"{path.name}: {seconds:.0f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
