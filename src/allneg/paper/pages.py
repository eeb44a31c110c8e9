"""docs/results.md and what belongs to it: written from result files, never by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from allneg.errors import RecipeError
from allneg.paper.beside import Beside, beside
from allneg.paper.cells import LOST_BY_L2
from allneg.paper.findings import findings
from allneg.paper.markdown import digits, line, link, signed
from allneg.paper.numbers import NOT_HERE, PARTS, TITLES, Number
from allneg.paper.plot import draw
from allneg.paper.results import Results
from allneg.recipe import Recipe
from allneg.runs.files import full_disk_named, write_text

_QUICK = "**QUICK: small data, small sizes. These are not the paper's numbers, nor ours.**\n\n"
_TOP = """# Results

Written by `allneg reproduce` from the result files; not by hand. "Paper" is Jain et al. (2020),
which prints two digits. Each of our numbers links to its result file, which holds the whole
recipe, and each row to its recipe. ± is the standard deviation over seeds, where there are
several. Weights were chosen by valid alone, and so were recipes, by its mean over the seeds that
both were trained with; what other recipes of full size reached is in results/tried. Where a recipe
ranks valid at its end only, the weights are the last epoch's. Numbers that one recipe makes share
its runs.
Valid is filtered by train and valid, not by test, so that its MRR is below test's: by far on FB15k
and WN18, where test holds the inverses of what train says. "Not run yet" is a recipe that waits for
its run. Seconds are those of a card that several trainings may have shared; a peak that is not
there was not measured.
"""
_COLUMNS = (
    "", "MRR: paper", "MRR: ours", "difference", "Hits@1: paper", "Hits@1: ours", "Hits@3: ours",
    "Hits@10: paper", "Hits@10: ours", "seeds", "seconds a seed", "peak GiB", "on",
)  # fmt: skip


@dataclass(frozen=True)
class _Page:
    """What the tables are made from, and where from the page it is found."""

    docs: Path
    results: Results
    recipes: Path

    @property
    def quick(self) -> bool:
        """Of small sizes: neither the recipes' numbers nor ones to judge."""
        return self.results.quick

    def beside(self, number: Number) -> Beside:
        return beside(number, self.results.get(number))

    def is_of_today(self, number: Number) -> bool:
        """Did the recipe as it stands make the result?"""
        if self.quick:
            return True
        result, path = self.results.get(number), number.recipe_file(self.recipes)
        return result is None or (path.exists() and result.is_of(Recipe.read(path)))


def write_pages(
    docs: Path,
    results: Results,
    numbers: Sequence[Number],
    recipes: Path,
    said: Callable[[str], None],
) -> list[Path]:
    """Write results.md, findings.md and the figure, and give their paths; say what could not be."""
    page = _Page(docs, results, recipes)
    with full_disk_named(docs):
        (docs / "figures").mkdir(parents=True, exist_ok=True)
    texts = {docs / "results.md": results_text(docs, results, numbers, recipes)}
    if not page.quick:
        texts[docs / "findings.md"] = findings(results, numbers, docs)
    for path, text in texts.items():
        write_text(path, text)
    figures = []
    try:
        figures = draw(_curves(page, numbers), docs / "figures", page.quick)
    except RecipeError as missing:
        said(str(missing))
    return [*texts, *figures]


def _curves(page: _Page, numbers: Sequence[Number]) -> dict[str, list[Beside]]:
    """The points of figure 1 that were run, of data sets with a line to draw."""
    found: dict[str, list[Beside]] = {}
    for number in numbers:
        if number.is_point and (our := page.beside(number)).mrr is not None:
            found.setdefault(number.data, []).append(our)
    return {data: points for data, points in found.items() if len(points) > 1}


def results_text(docs: Path, results: Results, numbers: Sequence[Number], recipes: Path) -> str:
    """The whole of results.md."""
    return "".join(_results(_Page(docs, results, recipes), numbers))


def _results(page: _Page, numbers: Sequence[Number]) -> Iterator[str]:
    if page.quick:
        yield _QUICK
    yield _TOP
    protocols = {page.beside(each).protocol for each in numbers} - {None}
    for said in sorted(each for each in protocols if each):
        yield f"\nProtocol: {said}.\n"
    yield from _at_a_glance(page, numbers)
    for part in ("table1", "table2"):
        yield f"\n## {PARTS[part][0].upper()}{PARTS[part][1:]}\n"
        yield from _tables(page, [each for each in numbers if each.part == part])
    points = [each for each in numbers if each.part == "figure1"]
    if points:
        yield f"\n## {PARTS['figure1'][0].upper()}{PARTS['figure1'][1:]}\n"
        if _curves(page, numbers):
            yield "\n![Test MRR by the number of negatives](figures/figure1.svg)\n"
        yield from _table(page, points, _point_title)
    norms = [each for each in numbers if each.row.startswith("norms/")]
    if norms:
        yield f"\n## {PARTS['norms']}\n"
        yield from _table(page, norms, _title)
        yield from _lost(page, norms)
    beyond = [each for each in numbers if each.part == "beyond" and each not in norms]
    if beyond:
        yield "\n## Beyond the paper\n"
        rows = [each for each in beyond if not each.is_point]
        yield from _tables(page, rows)
        yield "\n### Figure 1 on the other data sets\n"
        for data in dict.fromkeys(each.data for each in beyond):
            some = [each for each in beyond if each.data == data and each.is_point]
            if some:
                yield f"\n{_called(data)}:\n"
                yield from _table(page, some, _point_title)
    if not page.quick:
        yield from _aims(page, numbers)


def _at_a_glance(page: _Page, numbers: Sequence[Number]) -> Iterator[str]:
    """A row a model, a column a data set."""
    shown = [each for each in numbers if each.data not in NOT_HERE and "/" not in each.row]
    if not shown:
        return
    # What stands among the norms on one data set may stand alone on another.
    by_name = {each.name.replace("/norms/", "/"): each for each in numbers}
    datasets = dict.fromkeys(each.data for each in shown)
    yield "\n## At a glance\n\nTest MRR: ours, and the paper's in brackets.\n\n"
    yield line(["", *map(_called, datasets)]) + line(["---", *["---:"] * len(datasets)])
    for row in dict.fromkeys(each.row for each in shown):
        cells = [by_name.get(f"{data}/{row}") for data in datasets]
        yield line([TITLES[row], *("" if each is None else _brief(page, each) for each in cells)])


def _brief(page: _Page, number: Number) -> str:
    printed = f" ({digits(number.paper.mrr, 2)})" if number.paper else ""
    mrr = page.beside(number).mrr
    return ("not run yet" if mrr is None else digits(mrr, 3)) + printed


def _tables(page: _Page, numbers: Sequence[Number]) -> Iterator[str]:
    """A table for each data set."""
    for data in dict.fromkeys(each.data for each in numbers):
        yield f"\n### {_called(data)}\n"
        yield from _table(page, [each for each in numbers if each.data == data], _title)


def _table(page: _Page, rows: Sequence[Number], title: Callable[[Number], str]) -> Iterator[str]:
    columns = _COLUMNS if any(each.paper for each in rows) else _without_paper(_COLUMNS)
    yield "\n" + line(columns)
    yield line(["---", *["---:"] * (len(columns) - 3), "---:", "---"])
    notes: list[str] = []
    for number in rows:
        cells = _cells(page, number, title(number), notes)
        yield line(cells if columns is _COLUMNS else _without_paper(cells))
    for i, note in enumerate(notes, 1):
        yield f"\n{i}. {note[0].upper()}{note[1:]}.\n"


def _cells(page: _Page, number: Number, title: str, notes: list[str]) -> list[str]:
    our, paper = page.beside(number), number.paper

    def noted(text: str, note: str) -> str:
        if note and note not in notes:
            notes.append(note)
        return f"{text} ({notes.index(note) + 1})" if note else text

    of_paper = (
        [digits(value, 2) for value in (paper.mrr, paper.hits1, paper.hits10)]
        if paper
        else [""] * 3
    )
    if paper:
        of_paper[0] = noted(of_paper[0], paper.note)
    name = link(title, number.recipe_file(page.recipes), page.docs)
    if our.mrr is None:
        why = NOT_HERE.get(number.data, "not run yet")
        return [name, of_paper[0], why, "", of_paper[1], "", "", of_paper[2], "", "", "", "", ""]
    spread = f" ± {digits(our.spread, 4)}" if our.spread is not None else ""
    mrr = link(digits(our.mrr, 4), number.result_file(page.results.folder), page.docs) + spread
    if not page.is_of_today(number):
        mrr = noted(mrr, "made by an earlier recipe, which its result file holds")
    return [
        name,
        of_paper[0],
        mrr,
        signed(our.difference),
        of_paper[1],
        digits(our.hits["1"], 4),
        digits(our.hits["3"], 4),
        of_paper[2],
        digits(our.hits["10"], 4),
        _seeds(our),
        f"{our.seconds:,.0f}",
        "" if our.peak_bytes is None else f"{our.peak_bytes / 2**30:.1f}",
        our.device or "",
    ]


def _seeds(our: Beside) -> str:
    """How many, and which: "1 (seed 0)", "3 (0, 1, 2)"."""
    which = ", ".join(map(str, our.seeds))
    return f"1 (seed {which})" if len(our.seeds) == 1 else f"{len(our.seeds)} ({which})"


def _without_paper(cells: Sequence[str]) -> list[str]:
    return [cell for i, cell in enumerate(cells) if i not in (1, 3, 4, 7)]


def _lost(page: _Page, norms: Sequence[Number]) -> Iterator[str]:
    by_row = {each.row: page.beside(each).mrr for each in norms}
    for model, lost in LOST_BY_L2.items():
        one, two = by_row.get(f"norms/{model}-l1"), by_row.get(f"norms/{model}-l2")
        ours = "not run yet" if one is None or two is None else f"{signed(two - one)}"
        name = {"transe": "TransE", "rotate": "RotatE"}[model]
        yield f"\n{name}, from L1 to L2: paper −{digits(lost, 3)}, ours {ours}.\n"


def _aims(page: _Page, numbers: Sequence[Number]) -> Iterator[str]:
    aimed = [each for each in numbers if each.aim.floor or each.aim.goal]
    if not aimed:
        return
    yield (
        "\n## Floors and goals\n\nThe floor is what the paper prints, or the same in three digits "
        "where its models were published\nelsewhere; the goal is at or above the best public "
        "figure of that kind.\n\n"
    )
    yield line(["", "data", "floor", "goal", "ours", ""]) + line(
        ["---"] * 2 + ["---:"] * 3 + ["---"]
    )
    for number in aimed:
        our, aim = page.beside(number), number.aim
        yield line(
            [
                TITLES.get(number.row, number.row),
                _called(number.data),
                digits(aim.floor, 3) if aim.floor else "",
                digits(aim.goal, 3) if aim.goal else "",
                "" if our.mrr is None else digits(our.mrr, 4),
                _verdict(our),
            ]
        )


def _verdict(our: Beside) -> str:
    aim = our.number.aim
    if our.mrr is None:
        return NOT_HERE.get(our.number.data, "not run yet")
    if aim.goal is not None and our.mrr >= aim.goal:
        return "goal reached"
    if aim.floor is not None:
        if our.mrr >= aim.floor:
            return "floor holds"
        equal = "; equal in the two digits printed" if our.prints_as_the_paper else ""
        return f"below the floor{equal}"
    return "below the goal"


def _point_title(number: Number) -> str:
    return "all entities" if number.row == "figure1/all" else f"{int(number.row.split('-')[1]):,}"


def _title(number: Number) -> str:
    return TITLES.get(number.row, number.row)


def _called(data: str) -> str:
    return TITLES.get(data, data)
