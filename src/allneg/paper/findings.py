"""docs/findings.md: which of the paper's claims hold, each sentence with the files behind it.

The sentences are templates; the numbers, the verdicts and the links come from result files, and
where there is none the page says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from allneg.paper.beside import Beside, beside
from allneg.paper.cells import FLAT_FROM, LOST_BY_L2
from allneg.paper.markdown import digits, link, signed
from allneg.paper.numbers import NOT_HERE, TITLES, Number
from allneg.paper.results import Results
from allneg.paper.words import (
    MUCH,
    SMALL,
    besides,
    difference,
    each_seed,
    goes,
    held,
    how_alike,
    how_much,
    in_words,
    mean,
)
from allneg.recipe import Recipe

_TOP = """# Findings

The claims of Jain et al. (2020) as queries, answered data set by data set. Written by `allneg
reproduce` from the result files that each sentence links to; test MRR, filtered, where there are
several seeds their mean ± standard deviation. A difference under {small} is called none: seeds
alone make as much. From {much} on it is called much.
"""
_FLAT = 0.005  # this near to its end a curve is called flat
# Settings that a comparison is about.
_NEGATIVES = {"loss.negatives", "loss.n_negatives"}
_NORM = {"model.norm"}
_SQUARED = {*_NORM, "model.squared", "model.bias"}


def findings(results: Results, numbers: Sequence[Number], docs: Path) -> str:
    """The whole page."""
    known = _Known(results, {each.name: each for each in numbers}, docs)
    points = " and ".join(f"{100 * LOST_BY_L2[model]:.1f}" for model in ("transe", "rotate"))
    sections = (
        ("Does every entity as a negative make old models much better?", _gain_of_products(known)),
        ("Are the models then hard to tell apart?", _apart(known)),
        ("Does RotatE gain, too?", _gain_of_rotate(known)),
        (f"Is the curve of figure 1 flat from about {FLAT_FROM:,} negatives?", _flat(known)),
        (f"Does L2 cost TransE and RotatE {points} points on FB15k?", _norms(known)),
        ("Beyond the paper", _beyond(known)),
        ("What is below its floor", _missed(known)),
    )
    text = _TOP.format(small=digits(SMALL, 3), much=digits(MUCH, 3))
    for title, sentences in sections:
        text += f"\n## {title}\n\n" + "".join(f"- {each}\n" for each in sentences)
    return text


@dataclass(frozen=True)
class _Known:
    """The results, and how to cite them."""

    results: Results
    numbers: dict[str, Number]
    docs: Path

    @property
    def datasets(self) -> list[str]:
        names = dict.fromkeys(each.data for each in self.numbers.values())
        return [name for name in names if name not in NOT_HERE]

    def get(self, data: str, row: str) -> Beside:
        number = self._number(data, row)
        return beside(number, self.results.get(number))

    def recipe(self, data: str, row: str) -> Recipe | None:
        """By which a row's result was made."""
        result = self.results.get(self._number(data, row))
        return result.parsed() if result is not None else None

    def _number(self, data: str, row: str) -> Number:
        return self.numbers.get(f"{data}/{row}", Number("", data, row))

    def mrr(self, data: str, row: str) -> float | None:
        return self.get(data, row).mrr

    def cite(self, *names: str) -> str:
        return ", ".join(
            link(name, self.results.folder / f"{name}.json", self.docs) for name in names
        )


def _gain_of_products(known: _Known) -> Iterator[str]:
    yield (
        "The rows of few negatives have the sizes at which their models were published, the others "
        "what valid liked best. So the gain is not of the negatives alone: each line says what "
        "else its two recipes differ in. Figure 1 changes nothing else."
    )
    for few, every in (("simple", "simple-v2"), ("complex", "complex-v2")):
        yield from _gains(known, few, every)


def _gain_of_rotate(known: _Known) -> Iterator[str]:
    yield from _gains(known, "rotate", "rotate-v2")


def _gains(known: _Known, few: str, every: str) -> Iterator[str]:
    name = TITLES[few].partition(",")[0]
    for data in known.datasets:
        one, other = known.get(data, few), known.get(data, every)
        missing = _missing(known, data, (few, every))
        if one.mrr is None or other.mrr is None:
            if one.number.part and other.number.part:
                yield missing
            continue
        gain, printed = difference(other.mrr, one.mrr), ""
        if one.number.paper and other.number.paper:
            theirs = (digits(each.mrr, 2) for each in (one.number.paper, other.number.paper))
            printed = f" (paper from {' to '.join(theirs)})"
        yield (
            f"{TITLES[data]}: {how_much(gain)}; {name} {goes(gain)} from {mean(one)} to "
            f"{mean(other)}, {signed(gain)}{printed}"
            f"{besides(known.recipe(data, few), known.recipe(data, every), _NEGATIVES)}: "
            f"{known.cite(f'{data}/{few}', f'{data}/{every}')}."
        )


def _apart(known: _Known) -> Iterator[str]:
    rows = ("simple-v2", "complex-v2", "complex-n3")
    for data in known.datasets:
        found = {row: mrr for row in rows if (mrr := known.mrr(data, row)) is not None}
        if len(found) < len(rows):
            if any(f"{data}/{row}" in known.numbers for row in rows):
                yield _missing(known, data, rows)
            continue
        best, worst = max(found, key=lambda row: found[row]), min(found, key=lambda row: found[row])
        apart = difference(found[best], found[worst])
        files = known.cite(*(f"{data}/{row}" for row in rows))
        verdict = f"{digits(apart, 3)} apart{', called none' if apart < SMALL else ''}"
        printed = [cell.mrr for row in rows if (cell := known.get(data, row).number.paper)]
        if printed:
            verdict += f" (paper {digits(max(printed) - min(printed), 2)})"
        yield (
            f"{TITLES[data]}: {how_alike(apart)}; from {TITLES[worst]}, "
            f"{mean(known.get(data, worst))}, to {TITLES[best]}, "
            f"{mean(known.get(data, best))}: {verdict}; {files}."
        )


def _flat(known: _Known) -> Iterator[str]:
    for data in known.datasets:
        points = [each for each in known.numbers.values() if each.data == data and each.is_point]
        if not points:
            continue
        found = {each.row: mrr for each in points if (mrr := known.mrr(data, each.row)) is not None}
        if len(found) < len(points):
            rows = [each.row for each in points]
            yield _missing(known, data, rows)
            continue
        end = found["figure1/all"]
        sizes = sorted((int(row.partition("-")[2]), row) for row in found if row != "figure1/all")
        first, least = sizes[0][1], None
        for size, row in reversed(sizes):
            if abs(found[row] - end) > _FLAT:
                break
            least = size
        where = "nowhere before every entity" if least is None else f"from {least:,} negatives on"
        files = link(f"{data}/figure1", known.results.folder / data / "figure1", known.docs)
        below = [size for size, _ in sizes if size < (least or math.inf)]
        if least is None or max(below, default=0) >= FLAT_FROM:
            verdict = "no"
        elif least <= FLAT_FROM:
            verdict = "yes"
        else:
            verdict = f"perhaps, as nothing was run between {max(below):,} and {least:,}"
        size, row = max(sizes, key=lambda each: found[each[1]])
        most = f"; most, {digits(found[row], 3)}, with {size:,}" if found[row] > end + SMALL else ""
        yield (
            f"{TITLES[data]}: {verdict}; {digits(found[first], 3)} with "
            f"{sizes[0][0]:,}, {digits(end, 3)} with all; within {digits(_FLAT, 3)} of that "
            f"{where}{most}: {files}."
        )


def _norms(known: _Known) -> Iterator[str]:
    for model, lost in LOST_BY_L2.items():
        rows = [f"norms/{model}-{norm}" for norm in ("l1", "l2", "squared")]
        ours = [known.get("fb15k", row) for row in rows]
        recipes = [known.recipe("fb15k", row) for row in rows]
        one, two, squared = (each.mrr for each in ours)
        name = {"transe": "TransE", "rotate": "RotatE"}[model]
        if one is None or two is None:
            yield _missing(known, "fb15k", rows[:2])
        else:
            loss = difference(one, two)
            verdict = "yes, or more" if loss >= lost - SMALL else "less"
            if loss < SMALL:
                verdict = "no"
            yield (
                f"{name}: {verdict}; L1 {mean(ours[0])}, L2 {mean(ours[1])}, "
                f"{signed(-loss)} (paper −{digits(lost, 3)})"
                f"{besides(recipes[0], recipes[1], _NORM)}: "
                f"{known.cite(*(f'fb15k/{row}' for row in rows[:2]))}."
            )
        if one is None or squared is None:
            yield _missing(known, "fb15k", rows[2:])
        else:
            yield (
                f"{name}: squared L2 with a bias an entity, a matrix product, has "
                f"{mean(ours[2])}, {signed(difference(squared, one))} to L1"
                f"{besides(recipes[0], recipes[2], _SQUARED)}: "
                f"{known.cite(f'fb15k/{rows[2]}')}."
            )


def _beyond(known: _Known) -> Iterator[str]:
    for number in known.numbers.values():
        if number.part != "beyond" or number.aim.goal is None:
            continue
        result = known.results.get(number)
        mrr = beside(number, result).mrr
        if result is None or mrr is None:
            yield _missing(known, number.data, [number.row])
            continue
        reached = "reaches" if mrr >= number.aim.goal else "stays below"
        yield (
            f"{TITLES[number.data]}: {TITLES[number.row]} has {digits(mrr, 3)} and {reached} its "
            f"goal, {digits(number.aim.goal, 3)}; by {in_words(result)}: "
            f"{known.cite(number.name)}."
        )


def _missed(known: _Known) -> Iterator[str]:
    missed = False
    for number in known.numbers.values():
        result, floor = known.results.get(number), number.aim.floor
        our = beside(number, result)
        if result is None or our.mrr is None or floor is None or number.data in NOT_HERE:
            continue
        if our.mrr >= floor:
            continue
        missed = True
        why = f" {number.aim.why}" if number.aim.why else ""
        if seeds := held(our.mrrs, floor):
            why = f" On test {seeds}.{why}"
        if our.prints_as_the_paper:
            why = f" In the two digits that the paper prints it is {digits(our.mrr, 2)}.{why}"
        rest = ""
        if tried := known.results.tried(number):
            valid = ", ".join(
                f"{link(path.stem, path, known.docs)} {each_seed(other, 'valid_mrr', 4)}"
                for path, other in tried.items()
            )
            seeds = held([mrr for other in tried.values() for mrr in other.values("mrr")], floor)
            test = f"; on test {seeds}" if seeds else ""
            rest = f" Valid of what else was tried: {valid}{test}."
        yield (
            f"{TITLES[number.data]}: {TITLES[number.row]}, {mean(our, 4)} where the floor is "
            f"{digits(floor, 3)}, by {in_words(result)} ({known.cite(number.name)}).{why}{rest}"
        )
    if not missed:
        yield "Nothing that was run."


def _missing(known: _Known, data: str, rows: Iterable[str]) -> str:
    lacking = [row for row in rows if known.mrr(data, row) is None]
    shown = ", ".join(f"`{row}`" for row in lacking[:4]) + (", …" if len(lacking) > 4 else "")
    return f"{TITLES.get(data, data)}: not run yet ({shown})."
