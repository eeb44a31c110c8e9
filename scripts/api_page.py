"""Write docs/api.md from the signatures and docstrings of the public Python API.

python scripts/api_page.py
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import allneg
from allneg import errors
from allneg.predict.ask import Answer, Step
from allneg.predict.results import Neighbour, Prediction, RelationPrediction, Results

PAGE = Path(__file__).parents[1] / "docs" / "api.md"
FUNCTIONS = (
    "train", "resume", "extend", "load", "evaluate", "compare", "ensemble", "export", "convert",
    "audit", "push", "verify", "tune", "search", "plan", "read_graph", "fit",
)  # fmt: skip
# The members of each class that users need; the others serve the package itself.
CLASSES = {
    "Run": (
        "folder", "recipe", "open", "graph", "model", "tables", "report", "has_report",
        "finished", "status", "metrics", "environment", "extend", "parents",
    ),
    "Report": (
        "metrics", "by_side", "by_relation", "by_category", "optimistic", "pessimistic", "unseen",
        "candidates", "protocol", "baselines", "ensemble", "calibration", "mrr", "mr", "hits",
        "count",
        "to_json", "from_json",
    ),
    "Predictor": (
        "model", "tables", "graph", "load", "tails", "heads", "predict", "answer", "answers", "ask",
        "relations", "score", "classify", "complete", "embedding", "relation_embedding",
        "query_vector", "neighbours", "scores", "calibration",
    ),
    "Completer": ("fit", "predict", "score", "get_params", "set_params"),
    "Recipe": (
        "data", "model", "loss", "regularizer", "optimizer", "training", "evaluation", "hardware",
        "read", "from_tables", "with_settings", "to_tables", "to_toml",
    ),
    "Graph": (
        "name", "vocabulary", "train", "valid", "test", "notes", "n_entities", "n_relations",
        "split", "facts", "categories", "seen",
    ),
    "Callbacks": (
        "on_run", "on_start", "on_message", "on_step", "on_evaluation", "on_epoch", "on_save",
        "on_end",
    ),
}  # fmt: skip
ALIASES = {"Problem": "AllnegError", "Watch": "Callbacks"}
INTRO = """# Python API

`import allneg` gives all names on this page. `scripts/api_page.py` writes the page from the
docstrings of the source.

```python
import allneg

run = allneg.train("countries", model="complex", settings={"training.epochs": 40})
run.report.mrr
allneg.load(run.folder).tails("France", "borders", k=5)
```
"""
ERRORS = """
## Errors
Every error that a user can fix is an `AllnegError`. The numbers are the exit codes of commands.

```
{tree}
```
"""
OLD_NAMES = """
## Earlier names
`Problem` is an alias of `AllnegError`. `Watch` is `Callbacks` with the earlier method names
`began`, `said`, `stepped` and `ranked`.
"""


def main() -> None:
    PAGE.write_text(page())


def page() -> str:
    """The whole page."""
    described = {*FUNCTIONS, *CLASSES, *ALIASES, "AllnegError"}
    if described != set(allneg.__all__):
        sys.exit(f"list these names in {Path(__file__).name}: {described ^ set(allneg.__all__)}")
    out = INTRO + "\n## Functions\n"
    out += "".join(_function(getattr(allneg, name)) for name in FUNCTIONS)
    out += "\n## Classes\n"
    for name, members in CLASSES.items():
        out += _class(getattr(allneg, name), members)
        if name == "Predictor":
            for kind in (Prediction, RelationPrediction, Neighbour, Answer, Step):
                out += _class(kind)
            out += _class(Results, ("to_pandas", "to_arrow"))
    tree = str(errors.__doc__).split("\n\n")[1]
    return out + ERRORS.format(tree=tree) + OLD_NAMES


def _function(function: Any) -> str:
    node = _node(function)
    assert isinstance(node, ast.FunctionDef)
    node.args.args = [argument for argument in node.args.args if argument.arg != "cls"]
    signature = f"{node.name}({', '.join(_arguments(node))}){_returns(node)}"
    if len(signature) > 100:
        lines = "".join(f"    {argument},\n" for argument in _arguments(node))
        signature = f"{node.name}(\n{lines}){_returns(node)}"
    return f"\n### {node.name}\n```\n{signature}\n```\n{_text(node, whole=True)}\n"


def _class(kind: Any, members: tuple[str, ...] | None = None) -> str:
    """A class with its docstring, its fields and its methods."""
    node = _class_node(kind)
    found = {
        name: f"- `{name}: {ast.unparse(item.annotation).removeprefix('parts.')}`"
        + (f": {comment}" if comment else "")
        for name, item, comment in fields_of(kind)
    }
    for item in (item for one in _with_bases(kind) for item in _class_node(one).body):
        if isinstance(item, ast.FunctionDef):
            found[item.name] = f"- `{_member(item)}`" + _short(item)
    chosen = found if members is None else {name: found[name] for name in members}
    return f"\n### {node.name}\n{_text(node, whole=True)}\n\n" + "\n".join(chosen.values()) + "\n"


def fields_of(kind: Any) -> Iterator[tuple[str, ast.AnnAssign, str]]:
    """The fields of a dataclass, each with the comment behind it."""
    for one in _with_bases(kind):
        lines = inspect.getsource(one).splitlines()
        for item in _class_node(one).body:
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                yield item.target.id, item, lines[item.lineno - 1].partition("  # ")[2]


def _with_bases(kind: Any) -> list[Any]:
    """The bases of a class that are in the package, then the class."""
    return [one for one in reversed(kind.__mro__) if one.__module__.startswith("allneg")]


def _class_node(kind: Any) -> ast.ClassDef:
    node = _node(kind)
    assert isinstance(node, ast.ClassDef)
    return node


def _member(node: ast.FunctionDef) -> str:
    """A method's signature; a property as name: type."""
    decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
    if decorators & {"property", "cached_property"}:
        return f"{node.name}: {ast.unparse(node.returns)}" if node.returns else node.name
    node.args.args = node.args.args[1:]  # self or cls
    prefix = "classmethod " if "classmethod" in decorators else ""
    return f"{prefix}{node.name}({', '.join(_arguments(node))}){_returns(node)}"


def _node(thing: Any) -> ast.stmt:
    return ast.parse(textwrap.dedent(inspect.getsource(thing))).body[0]


def _arguments(node: ast.FunctionDef) -> list[str]:
    """The arguments as people write them: `k: int = 10`."""
    every = node.args
    defaults = [*[None] * (len(every.args) - len(every.defaults)), *every.defaults]
    out = [_argument(*pair) for pair in zip(every.args, defaults, strict=True)]
    if every.vararg or every.kwonlyargs:
        keywords = zip(every.kwonlyargs, every.kw_defaults, strict=True)
        star = f"*{ast.unparse(every.vararg)}" if every.vararg else "*"
        out += [star, *(_argument(*pair) for pair in keywords)]
    if every.kwarg:
        out.append(f"**{ast.unparse(every.kwarg)}")
    return out


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    value = f" = {ast.unparse(default)}" if default else ""
    return f"{ast.unparse(argument)}{value}"


def _returns(node: ast.FunctionDef) -> str:
    return f" -> {ast.unparse(node.returns)}" if node.returns else ""


def _short(node: ast.FunctionDef) -> str:
    text = _text(node)
    return f": {text}" if text else ""


def _text(node: ast.FunctionDef | ast.ClassDef, whole: bool = False) -> str:
    """The docstring, or its first paragraph on one line."""
    text = ast.get_docstring(node) or ""
    return text if whole else " ".join(text.split("\n\n")[0].split())


if __name__ == "__main__":
    main()
