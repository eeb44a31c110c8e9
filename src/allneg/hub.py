"""Runs on the Hugging Face Hub: `push` uploads one with a model card, `download` fetches one.

A downloaded run is untrusted: every file of it is checked before it enters the cache, and it is
read with the same care as any other run (SECURITY.md).
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from allneg import __version__
from allneg.errors import AllnegError, DataError, RunError, UsageError, counted, extra, printable
from allneg.evaluation.report import Report, by_heading
from allneg.graph.graph import SPLITS
from allneg.paths import cache_folder, locked, new_folder, remove
from allneg.runs import Run, files
from allneg.runs.run import RUN_FILES, export
from allneg.runs.verify import verify
from allneg.terminal import clean

PREFIX = "hf:"
_NAME = re.compile(r"(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:@(?P<revision>[\w./-]+))?")
_SHA = re.compile(r"[0-9a-f]{40}")
_RELATIONS = 20  # in the table of a card
_FILES = [*RUN_FILES, "checkpoints/*"]  # nothing else is downloaded


def push(run: Run | Path | str, name: str, private: bool = False) -> str:
    """Upload a finished run to the repository `user/name` of the hub, and return its address.

    The repository is created if it is missing; an earlier run in it is replaced. The upload has
    the triples, the weights and a model card, which is written from the report. Log in first with
    `hf auth login`.
    """
    with extra("hub", "push"):
        from huggingface_hub import HfApi

    opened = run if isinstance(run, Run) else Run.open(run)
    repository, revision = _parsed(name)
    if revision is not None:
        raise UsageError(f"{name}: push to a repository without @{revision}")
    if not opened.finished:
        raise UsageError(f"{opened.folder}: not finished; run `allneg resume` first")
    api = HfApi(library_name="allneg", library_version=__version__)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "run"
        export(opened, folder)  # without locks and leftovers, and with its shards joined
        card = model_card(opened, repository, PREFIX + repository)
        files.write_text(folder / "README.md", card)
        with _hub_errors(repository):
            api.create_repo(repository, private=private, exist_ok=True)
            found = api.upload_folder(
                repo_id=repository, folder_path=folder, commit_message="Upload a run of allneg",
                delete_patterns=_FILES,
            )  # fmt: skip
    return str(found.repo_url)


def local_folder(run: Path | str) -> Path:
    """The folder of a run. `hf:user/name` or `hf:user/name@revision` is downloaded first."""
    return download(str(run)) if str(run).startswith(PREFIX) else Path(run)


def download(name: str) -> Path:
    """The folder, in the cache, of a run on the hub."""
    repository, revision = _parsed(name.removeprefix(PREFIX))
    cache = cache_folder() / "hub" / repository
    if revision is not None and _SHA.fullmatch(revision) and (cache / revision).exists():
        return cache / revision
    if os.environ.get("ALLNEG_OFFLINE") == "1":
        raise DataError(f"{name}: not in the cache, and ALLNEG_OFFLINE=1 forbids downloads")
    with extra("hub", name):
        from huggingface_hub import HfApi
    api = HfApi(library_name="allneg", library_version=__version__)
    with _hub_errors(repository):
        commit = str(api.model_info(repository, revision=revision).sha)
    if not _SHA.fullmatch(commit):
        raise DataError(f"{name}: the hub names no commit")
    with locked(cache, ".lock"):
        if not (cache / commit).exists():
            with new_folder(cache / commit) as folder:
                with _hub_errors(repository):
                    api.snapshot_download(
                        repository, revision=commit, local_dir=folder, allow_patterns=_FILES
                    )
                remove(folder / ".cache")  # of the hub's own client
                _check(name, folder)
    return cache / commit


def _check(name: str, folder: Path) -> None:
    """Raise a `RunError` unless a downloaded folder is a whole run."""
    try:
        wrong = [check.wrong for check in verify(folder) if check.wrong is not None]
    except AllnegError as error:
        wrong = [str(error)]
    if wrong:
        raise RunError(f"{name}: not a whole run: {wrong[0].replace(f'{folder}/', '')}")


def _parsed(name: str) -> tuple[str, str | None]:
    match = _NAME.fullmatch(name)
    if match is None or ".." in name:
        raise UsageError(f"{printable(name)} is not a repository of the hub; write user/name")
    return match["repo"], match["revision"]


@contextmanager
def _hub_errors(repository: str) -> Iterator[None]:
    """Turn an error of the hub or of the network into a `DataError` of one line."""
    from huggingface_hub.errors import HfHubHTTPError

    network_error: Any = HfHubHTTPError.__bases__[0]  # of the HTTP package that this version uses
    try:
        yield
    except HfHubHTTPError as error:
        status = error.response.status_code
        advice = {
            401: "; log in with `hf auth login`", 403: "; this account may not do that",
            404: "; check the name, and log in if it is private",
        }.get(status, "")  # fmt: skip
        raise DataError(f"{PREFIX}{repository}: the hub answered {status}{advice}") from None
    except (network_error, ValueError, OSError) as error:
        why = clean(str(error).split("\n")[0])
        raise DataError(f"{PREFIX}{repository}: the hub cannot be used ({why})") from None


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
    lines = [f"| | {' | '.join(headings)} |", "|---" * (len(headings) + 1) + "|"]
    for name, means in rows.items():
        shown = [f"{mean:.4f}" if mean is not None else "" for mean in means.values()]
        lines.append(f"| {name} | {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"


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
        **{f"? {side}": report.by_side[side] for side in ("tail", "head")},
        **{f"baseline: {name}": table for name, table in report.baselines.items()},
    }
    protocol = report.protocol
    text = (
        f"Ranks of the right answers in {protocol['split']}, {report.count:,} queries with "
        f"{report.candidates:,} candidates each; {protocol['in_words']}.\n\n"
    )
    sides = [(name, side) for name in report.by_relation for side in ("tail", "head")]
    behind = [
        (name, side)
        for name, side in sides
        if (best := report.best_baseline(name, side)) is not None
        and best >= report.by_relation[name][side]["mrr"]
    ]
    limits = ""
    if unseen := report.unseen["triples"]:
        limits += f"- {counted(unseen, 'ranked triple')} with entities that are not in train.\n"
    if report.baselines:
        limits += (
            f"- For {len(behind)} of {len(sides)} sides of relations, a simple baseline is as good "
            "or better.\n"
        )
    table = metrics_table({name: by_heading(row) for name, row in rows.items()})
    return f"{text}{table}\n{_by_relation(report)}", limits


def _by_relation(report: Report) -> str:
    """The MRR of the most frequent relations, by side."""
    found = sorted(report.by_relation.items(), key=lambda item: -item[1]["tail"]["count"])
    lines = ["| relation | triples | MRR, ? tail | MRR, ? head |", "|---|---|---|---|"]
    for name, sides in found[:_RELATIONS]:
        cells = " | ".join(f"{sides[side]['mrr']:.4f}" for side in ("tail", "head"))
        shown = _plain(name).replace("|", "\\|")
        lines.append(f"| {shown} | {sides['tail']['count']:,} | {cells} |")
    if len(found) > _RELATIONS:
        lines.append(f"\n{len(found) - _RELATIONS:,} other relations are in `report.json`.")
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """Text that neither ends a code span nor controls a terminal."""
    return clean(text).replace("`", "'")
