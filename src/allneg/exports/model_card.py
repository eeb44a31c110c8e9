"""The model card of a run: use, results, data, limits and recipe, in Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from allneg import __version__
from allneg.errors import counted
from allneg.evaluation.report import Report, by_heading
from allneg.graph.graph import SPLITS
from allneg.graph.queries import SIDES
from allneg.runs import Run
from allneg.terminal import clean

_RELATIONS = 20  # in the table of a card


def model_card(run: Run, title: str, address: str) -> str:
    """The card of a run that `load` finds at an address: use, results, data, limits, recipe."""
    graph, settings = run.graph, run.recipe.model
    names = graph.vocabulary
    head, relation, _ = graph.train[0].tolist()
    example = ", ".join(json.dumps(n) for n in (names.entities[head], names.relations[relation]))
    data = _plain(graph.name)
    sizes = ", ".join((counted(graph.n_entities, "entity"), counted(graph.n_relations, "relation")))
    triples = ", ".join(f"{split} {len(graph.split(split)):,}" for split in SPLITS)
    results, limits = _results(run)
    model = f"{type(run.model).__name__} with dim {settings.dim}"
    about = f"""{model} on `{data}`, trained with allneg {__version__}.
It answers questions such as `(head, relation, ?)` with entities of the knowledge graph.

```python
import allneg

model = allneg.load({json.dumps(address)})
model.tails({example}, k=5)
```"""
    of_data = f"""`{data}`: {sizes}; triples: {triples}.
The run contains all of them. Their licence is that of the data."""
    return card(title, [settings.name], about, results, of_data, limits, run.recipe.to_toml())


def card(
    title: str, tags: Iterable[str], about: str, results: str, data: str, limits: str, recipe: str
) -> str:
    """A model card in Markdown."""
    more_tags = "".join(f"\n- {tag}" for tag in tags)
    return f"""---
library_name: allneg
tags:
- knowledge-graph
- link-prediction{more_tags}
---
# {title}

{about}

## Results
{results}
## Data
{data}

## Limits
- The model knows only the entities and relations of its data, as they were at training.
- It ranks entities for every question, also for one without an answer. A softmax share is not the
  probability that an answer is right.
- Errors and biases of the data are learned with it.
{limits}
## Recipe
```toml
{recipe.rstrip()}
```
"""


def metrics_table(rows: Mapping[str, Mapping[str, float | None]]) -> str:
    """Rows of means by heading, as Markdown."""
    headings = list(next(iter(rows.values())))
    lines = [f"| | {' | '.join(headings)} |", "|---" + "|--:" * len(headings) + "|"]
    for name, means in rows.items():
        shown = [_cell(heading, mean) for heading, mean in means.items()]
        lines.append(f"| {name} | {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"


def _cell(heading: str, mean: float | None) -> str:
    if mean is None:
        return ""
    return f"{mean:,.1f}" if heading == "MR" else f"{mean:.4f}"


def _results(run: Run) -> tuple[str, str]:
    """The tables of metrics with their protocol, and what the report says about limits."""
    if not run.has_report:
        return (
            "There is neither valid nor test, so nothing was ranked.\n",
            "- It is not evaluated.\n",
        )
    report = run.report
    rows = {
        "all": report.to_json(),
        **{f"? {side}": report.by_side[side] for side in SIDES},
        **{f"baseline: {name}": table for name, table in report.baselines.items()},
    }
    protocol = report.protocol
    text = (
        f"Ranks of the right answers in {protocol['split']}, {report.count:,} queries with "
        f"{report.candidates:,} candidates each; {protocol['in_words']}.\n\n"
    )
    behind, n_sides = report.sides_behind(), 2 * len(report.by_relation)
    limits = ""
    if unseen := report.unseen["triples"]:
        limits += f"- {counted(unseen, 'ranked triple')} with entities that are not in train.\n"
    if report.baselines:
        limits += (
            f"- For {len(behind)} of {n_sides} sides of relations, a simple baseline is as good "
            "or better.\n"
        )
    table = metrics_table({name: by_heading(row) for name, row in rows.items()})
    return f"{text}{table}\n{_by_relation(report)}", limits


def _by_relation(report: Report) -> str:
    """The MRR of the most frequent relations, by side."""
    found = sorted(report.by_relation.items(), key=lambda item: -item[1]["tail"]["count"])
    lines = ["| relation | triples | MRR, ? tail | MRR, ? head |", "|---|--:|--:|--:|"]
    for name, sides in found[:_RELATIONS]:
        cells = " | ".join(f"{sides[side]['mrr']:.4f}" for side in SIDES)
        shown = _plain(name).replace("|", "\\|")
        lines.append(f"| {shown} | {sides['tail']['count']:,} | {cells} |")
    if len(found) > _RELATIONS:
        lines.append(f"\n{len(found) - _RELATIONS:,} other relations are in `report.json`.")
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """Text that neither ends a code span nor controls a terminal."""
    return clean(text).replace("`", "'")
