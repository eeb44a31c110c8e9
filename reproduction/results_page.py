"""docs/results.md: our numbers beside the paper's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from allneg import recipes
from allneg.reproduce import UNAVAILABLE, Cell
from reproduction.published import (
    ABLATIONS,
    BEST_SINGLE,
    LOST_BY_L2,
    TITLES,
    Ours,
    Published,
    is_point,
)
from reproduction.text import digits, line, link, mean, signed

_TOP = """# Results

`python -m reproduction` writes this page from the result files. Do not edit it by hand.

- "Paper" is Jain et al. (2020), who report two digits.
- Each of our numbers links to its result file, which holds the whole recipe. Each row links to its
  recipe. Cells with the same recipe share its runs.
- ± is the standard deviation over seeds.
- Weights are selected by MRR on valid. "Filter" names the known answers that are left out
  when valid is ranked: those in train, valid and test (`all`), or those in train and valid
  (`seen`). With `all`, test influences the selection in one way: its facts do not count as wrong
  answers. The ranks of test triples have no influence.
  [The rule and its reasons](evaluation.md#how-weights-are-selected).
- `seen` is the earlier rule. Its results are in results/seen; the files hold the earlier recipes
  that produced them. Once a cell is trained with `all`, both results are shown.
- With `seen`, validation MRR is lower than test MRR, because the answers in test count as wrong.
  The gap is large on FB15k and WN18, where test holds inverses of training triples.
- Recipes were selected by the mean validation MRR over the seeds that both recipes were trained
  with: with `seen`, unless results/tried has other configurations of the cell with `all`. The
  configurations that were not selected with `seen` are in results/seen/tried.
- With `seen`, the choice between almost equal recipes was often made with one seed, although
  seeds differ as much as the recipes.
- Some earlier recipes of FB15k ranked valid only after the last epoch, and therefore used the
  last weights. We decided this after we knew the test MRR of such runs. The present recipes rank
  valid regularly.
- "Not run yet" marks a recipe without a result. Several runs may have shared a GPU when the seconds
  were measured. An empty peak was not measured. "To reach" is the floor, or the goal if there is
  no floor: see [floors and goals](#floors-and-goals).
"""
_HEADINGS = {
    "table1": "Table 1: bilinear models with few and with all negatives",
    "table2": "Table 2: RotatE, dim 100, with 256 and with all negatives",
    "figure1": "Figure 1: ComplEx by number of negatives, on FB15k",
    "norms": "TransE and RotatE on FB15k with L1 and L2",
}
_COLUMNS = (
    "", "MRR: paper", "MRR: to reach", "MRR: ours", "filter", "MRR: ours, filter seen",
    "difference", "Hits@1: paper", "Hits@1: ours", "Hits@3: ours", "Hits@10: paper",
    "Hits@10: ours", "seeds", "seconds per seed", "peak GiB", "device",
)  # fmt: skip
_TARGET_COLUMNS = {2}
_EARLIER_COLUMNS = {5}
_PAPER_COLUMNS = {1, 6, 7, 10}


def results_page(published: Published) -> str:
    """The whole page."""
    return "".join(_page(published))


def _page(published: Published) -> Iterator[str]:
    cells = published.cells
    yield _TOP
    protocols = {
        protocol["in_words"]
        for cell in cells
        for protocol in published.ours(cell).values("protocol")
    }
    for protocol in sorted(protocols):
        words = protocol.replace("ties share the middle place", "ties get the mean of their ranks")
        yield f"\nProtocol: {words}.\n"
    yield from _overview(published)
    for part in ("table1", "table2"):
        yield f"\n## {_HEADINGS[part]}\n"
        yield from _tables(published, [cell for cell in cells if cell.part == part])
    yield f"\n## {_HEADINGS['figure1']}\n"
    if published.curves():
        yield "\n![Test MRR by number of negatives](figures/figure1.svg)\n"
    yield from _table(published, [cell for cell in cells if cell.part == "figure1"], _point_title)
    norms = [cell for cell in cells if cell.row.startswith("norms/")]
    yield f"\n## {_HEADINGS['norms']}\n"
    yield from _table(published, norms)
    yield from _lost_by_l2(published)
    yield from _ablation(published)
    parts = ("beyond", "ensemble")
    beyond = [cell for cell in cells if cell.part in parts and cell not in norms]
    yield "\n## Beyond the paper\n"
    yield from _tables(published, [cell for cell in beyond if not is_point(cell)])
    yield "\n### Figure 1 on the other datasets\n"
    for data in dict.fromkeys(cell.data for cell in beyond if is_point(cell)):
        yield f"\n{TITLES[data]}:\n"
        points = [cell for cell in beyond if cell.data == data and is_point(cell)]
        yield from _table(published, points, _point_title)
    yield from _targets(published)


def _overview(published: Published) -> Iterator[str]:
    """One row per model, one column per dataset."""
    shown = [
        cell for cell in published.cells if cell.data not in UNAVAILABLE and "/" not in cell.row
    ]
    # A row of the norms on one dataset may be a row of its own on another.
    by_name = {cell.name.replace("/norms/", "/"): cell for cell in published.cells}
    datasets = dict.fromkeys(cell.data for cell in shown)
    yield "\n## Overview\n\n"
    yield "Our test MRR, with the paper's in parentheses. \\* marks filter `seen`.\n\n"
    yield line(["", *(TITLES[data] for data in datasets)])
    yield line(["---", *["---:"] * len(datasets)])
    for row in dict.fromkeys(cell.row for cell in shown):
        found = [by_name.get(f"{data}/{row}") for data in datasets]
        yield line(
            [TITLES[row], *("" if cell is None else _brief(published, cell) for cell in found)]
        )


def _brief(published: Published, cell: Cell) -> str:
    paper = f" ({digits(cell.paper.mrr, 2)})" if cell.paper else ""
    ours = published.ours(cell)
    star = "\\*" if ours.filter == "seen" else ""
    norm = f" with {ours.l2}" if ours.l2 and "L2" not in TITLES[cell.row] else ""
    return (digits(ours.mrr, 3) or "not run yet") + star + norm + paper


def _title(ours: Ours) -> str:
    return ours.title


def _point_title(ours: Ours) -> str:
    row = ours.cell.row
    return "all entities" if row == "figure1/all" else f"{int(row.split('-')[1]):,}"


def _tables(published: Published, cells: Sequence[Cell]) -> Iterator[str]:
    """One table per dataset."""
    for data in dict.fromkeys(cell.data for cell in cells):
        yield f"\n### {TITLES[data]}\n"
        yield from _table(published, [cell for cell in cells if cell.data == data])


def _table(
    published: Published, cells: Sequence[Cell], title: Callable[[Ours], str] = _title
) -> Iterator[str]:
    has_paper = any(cell.paper for cell in cells)
    has_earlier = any(published.ours(cell).earlier for cell in cells)
    hidden = set() if has_paper else _PAPER_COLUMNS
    hidden = hidden if has_earlier else hidden | _EARLIER_COLUMNS
    has_target = any(published.ours(cell).target.least for cell in cells)
    hidden = hidden if has_target else hidden | _TARGET_COLUMNS

    def shown(texts: Sequence[str]) -> list[str]:
        return [text for i, text in enumerate(texts) if i not in hidden]

    columns = shown(_COLUMNS)
    yield "\n" + line(columns)
    yield line(["---", *["---:"] * (len(columns) - 2), "---"])
    notes: list[str] = []
    for cell in cells:
        yield line(shown(_row(published, cell, title(published.ours(cell)), notes)))
    for i, note in enumerate(notes, 1):
        yield f"\n{i}. {note[0].upper()}{note[1:]}.\n"


def _row(published: Published, cell: Cell, title: str, notes: list[str]) -> list[str]:
    def with_note(text: str, note: str) -> str:
        if note and note not in notes:
            notes.append(note)
        return f"{text} ({notes.index(note) + 1})" if note else text

    ours, docs, paper = published.ours(cell), published.docs, ["", "", ""]
    if cell.paper:
        numbers = (cell.paper.mrr, cell.paper.hits1, cell.paper.hits10)
        paper = [digits(value, 2) for value in numbers]
        paper[0] = with_note(paper[0], cell.paper.note)
    name = link(title, recipes.FOLDER / f"{cell.name}.toml", docs)
    if cell.members:
        rows = ", ".join(TITLES[member.row] for member in cell.members)
        name = with_note(title, f"runs of the same seed: {rows}")
    least = digits(ours.target.least, 3)
    if ours.result is None:
        why = UNAVAILABLE.get(cell.data, "not run yet")
        return [name, paper[0], least, why, "", "", "", paper[1], "", "", paper[2], *[""] * 5]
    mrr = _linked(ours, published.path(cell), docs)
    earlier = ""
    if ours.earlier is not None:
        earlier = _linked(Ours.of(cell, ours.earlier), published.earlier.path(cell), docs)
    if ours.filter == "all" and not ours.result.is_of(cell.recipe()):
        mrr = with_note(mrr, "made by an earlier recipe, which its result file holds")
    peaks = ours.values("peak_bytes")
    return [
        name,
        paper[0],
        least,
        mrr,
        ours.filter,
        earlier,
        signed(ours.difference),
        paper[1],
        digits(ours.hits["1"], 4),
        digits(ours.hits["3"], 4),
        paper[2],
        digits(ours.hits["10"], 4),
        _seeds(ours.seeds),
        f"{ours.seconds:,.0f}",
        f"{max(peaks) / 2**30:.1f}" if peaks else "",
        ", ".join(sorted({machine["device"] for machine in ours.values("machine")})),
    ]


def _linked(ours: Ours, path: Path, docs: Path) -> str:
    return link(digits(ours.mrr, 4), path, docs) + mean(None, ours.spread, 4)


def _seeds(seeds: Sequence[int]) -> str:
    """How many, and which: "1 (seed 0)", "3 (0, 1, 2)"."""
    which = ", ".join(map(str, seeds))
    return f"1 (seed {which})" if len(seeds) == 1 else f"{len(seeds)} ({which})"


def _lost_by_l2(published: Published) -> Iterator[str]:
    for model, lost in LOST_BY_L2.items():
        one, two = (published.get("fb15k", f"norms/{model}-{norm}") for norm in ("l1", "l2"))
        if one is None or two is None:
            continue
        name = one.title.partition(" (")[0]
        run = one.mrr is not None and two.mrr is not None
        ours = signed((two.mrr or 0) - (one.mrr or 0)) if run else "not run yet"
        yield f"\n{name}, from L1 to L2: paper −{digits(lost, 3)}, ours {ours}.\n"


def _ablation(published: Published) -> Iterator[str]:
    """One table per dataset: each row differs in one thing from the first row above it."""
    yield "\n## Ablation: one change at a time\n"
    yield (
        "\nEach recipe differs from that of ComplEx-V2 or RotatE-V2 in one setting: the negatives, "
        "the loss, or the\nfilter that is used to select weights.\n"
    )
    cells = [cell for cell in published.cells if cell.row in ABLATIONS]
    for data in dict.fromkeys(cell.data for cell in cells):
        rows = [cell.row for cell in cells if cell.data == data]
        order = dict.fromkeys(name for row in rows for name in (ABLATIONS[row][0], row))
        found = [ours.cell for row in order if (ours := published.get(data, row)) is not None]
        yield f"\n### {TITLES[data]}\n"
        yield from _table(published, found)


def _targets(published: Published) -> Iterator[str]:
    yield (
        "\n## Floors and goals\n\nThe floor is the paper's number, or a higher published one; for "
        "SimplE on WN18 it is .945, which\nrounds to the paper's .95. The goal is the best public "
        "number of that kind, or more. The best single\nmodel is the one with the best validation "
        "MRR of all rows.\n\n"
    )
    yield line(["", "data", "floor", "goal", "ours", "filter", ""])
    yield line(["---"] * 2 + ["---:"] * 3 + ["---"] * 2)
    for cell in published.cells:
        ours = published.ours(cell)
        floor, goal = ours.target.floor, ours.target.goal
        if floor or goal:
            numbers = digits(floor, 3), digits(goal, 3), digits(ours.mrr, 4)
            yield line([ours.title, TITLES[cell.data], *numbers, ours.filter, _verdict(ours)])
    for data, goal in BEST_SINGLE.items():
        if (best := published.best_single(data)) is None:
            row = ["Best single model", TITLES[data], "", digits(goal, 3), "", "", "not run yet"]
        else:
            name, mrr = f"Best single model: {best.title}", best.mrr or 0
            verdict = "goal reached" if mrr >= goal else "below the goal"
            numbers = "", digits(goal, 3), digits(mrr, 4)
            row = [name, TITLES[data], *numbers, best.filter, verdict]
        yield line(row)


def _verdict(ours: Ours) -> str:
    floor, goal = ours.target.floor, ours.target.goal
    if ours.mrr is None:
        return UNAVAILABLE.get(ours.cell.data, "not run yet")
    if goal is not None and ours.mrr >= goal:
        return "goal reached"
    if floor is not None:
        if ours.mrr >= floor:
            return "floor reached"
        digits = "; reaches the paper's two digits" if ours.rounds_to_the_paper else ""
        return f"below the floor{digits}"
    return "below the goal"
