"""Every number that is reproduced: which recipe makes it, and what the paper has there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from allneg.errors import RecipeError, close_names
from allneg.paper.cells import AIMS, TABLE1, TABLE2, Cell, StopAt

PARTS = {
    "table1": "table 1: bilinear models, few negatives and all",
    "table2": "table 2: RotatE of dim 100, 256 negatives and all",
    "figure1": "figure 1: ComplEx by the number of negatives, on FB15k",
    "norms": "TransE and RotatE on FB15k under L1 and L2",
    "beyond": "what the paper does not have",
}
TITLES = {
    "fb15k": "FB15k",
    "wn18": "WN18",
    "yago3-10": "YAGO3-10",
    "fb15k-237": "FB15k-237",
    "wn18rr": "WN18RR",
    "simple": "SimplE",
    "simple-v2": "SimplE-V2",
    "complex": "ComplEx",
    "complex-v2": "ComplEx-V2",
    "complex-n3": "ComplEx-N3",
    "rotate": "RotatE, 256 negatives",
    "rotate-v2": "RotatE-V2, all entities",
    "rotate-full": "RotatE, all entities, dim free",
    "transe-full": "TransE L1, all entities, dim free",
    "bilinear": "ComplEx with relation prediction or DURA",
    "rotate-squared": "RotatE, squared L2 with biases",
    "norms/transe-l1": "TransE, L1",
    "norms/transe-l2": "TransE, L2",
    "norms/transe-squared": "TransE, squared L2 with biases",
    "norms/rotate-l1": "RotatE, sum of moduli",
    "norms/rotate-l2": "RotatE, L2",
    "norms/rotate-squared": "RotatE, squared L2 with biases",
}
DATASETS = ("fb15k", "wn18", "yago3-10", "fb15k-237", "wn18rr")
NOT_HERE = {"yago3-10": "not run here: split not available"}
NEGATIVES = (100, 200, 400, 600, 800, 1000, 2000, 4000, 6000, 8000, 10_000, 12_000, 14_000, None)
_ELSEWHERE = (100, 400, 1000, 4000, None)  # the curve's points on the other data sets
_BEYOND = ("bilinear", "rotate-full", "transe-full")


@dataclass(frozen=True)
class Number:
    """One published number: `recipes/DATA/ROW.toml` makes it, `results/DATA/ROW.json` keeps it."""

    part: str
    data: str
    row: str
    paper: Cell | None = None
    aim: StopAt = field(default_factory=StopAt)

    @property
    def name(self) -> str:
        return f"{self.data}/{self.row}"

    @property
    def is_point(self) -> bool:
        """Is it a point of figure 1, or of the same curve on another data set?"""
        return self.row.startswith("figure1/")

    def recipe_file(self, folder: Path) -> Path:
        return folder / f"{self.name}.toml"

    def result_file(self, folder: Path) -> Path:
        return folder / f"{self.name}.json"


def point(negatives: int | None) -> str:
    """The row of a point of figure 1; None is every entity."""
    return "figure1/all" if negatives is None else f"figure1/k-{negatives}"


def _all() -> Iterator[Number]:
    for part, table in (("table1", TABLE1), ("table2", TABLE2)):
        for row, cells in table.items():
            for data in DATASETS:
                yield _number(part, data, row, cells.get(data))
    for negatives in NEGATIVES:
        yield Number("figure1", "fb15k", point(negatives))
    for model in ("transe", "rotate"):
        for norm in ("l1", "l2"):
            yield Number("norms", "fb15k", f"norms/{model}-{norm}")
    here = [data for data in DATASETS if data not in NOT_HERE]
    for row in _BEYOND:
        for data in here:
            yield _number("beyond", data, row)
    for model in ("transe", "rotate"):
        yield Number("beyond", "fb15k", f"norms/{model}-squared")
    for data in ("fb15k-237", "wn18rr"):
        yield _number("beyond", data, "rotate-squared")
    for data in here[1:]:
        for negatives in _ELSEWHERE:
            yield Number("beyond", data, point(negatives))


def _number(part: str, data: str, row: str, paper: Cell | None = None) -> Number:
    return Number(part, data, row, paper, AIMS.get(row, {}).get(data, StopAt()))


NUMBERS = tuple(_all())


def _listed(names: Iterable[str]) -> str:
    """All of them, the points of figure 1 as one."""
    points = {point(negatives) for negatives in NEGATIVES}
    shown = sorted({"figure1/k-100, …, figure1/all" if each in points else each for each in names})
    return f"; there are {', '.join(shown)}"


def chosen(
    numbers: Iterable[Number],
    parts: Iterable[str],
    datasets: Iterable[str] = (),
    rows: Iterable[str] = (),
) -> list[Number]:
    """The numbers of some parts, narrowed; those whose data is not to be had only by its name."""
    numbers, datasets, rows = list(numbers), list(datasets), list(rows)
    for what, words, known in (
        ("data set", datasets, {each.data for each in numbers}),
        ("row", rows, {each.row for each in numbers}),
    ):
        for word in words:
            if word not in known:
                within = sorted(each for each in known if word in each.split("/"))
                said = f"; close names: {', '.join(within)}" if within else close_names(word, known)
                raise RecipeError(f"no {what} is called {word!r}{said or _listed(known)}")
    found = [
        each
        for each in numbers
        if each.part in parts
        and (each.data in datasets if datasets else each.data not in NOT_HERE)
        and (not rows or each.row in rows)
    ]
    if not found:
        parted = sorted({each.part for each in numbers if each.row in rows and each.part})
        said = f"; those rows are of {', '.join(parted)}" if parted else ""
        raise RecipeError(
            f"no number of {', '.join(parts)} is in these --datasets and --rows{said}"
        )
    return found
