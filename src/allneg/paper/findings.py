"""docs/findings.md: which of the paper's claims hold, each sentence with the files behind it.

The sentences are templates; the numbers, the verdicts and the links come from result files, and
where there is none the page says so.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from allneg.paper.beside import Beside, beside
from allneg.paper.cells import FLAT_FROM, LOST_BY_L2
from allneg.paper.markdown import digits, link, signed
from allneg.paper.numbers import NOT_HERE, TITLES, Number
from allneg.paper.results import Result, Results, what_counts
from allneg.recipe import Recipe

_TOP = """# Findings

The claims of Jain et al. (2020) as questions, answered data set by data set. Written by `allneg
reproduce` from the result files that each sentence links to; test MRR, filtered, where there are
several seeds their mean ± standard deviation. A difference under {small} is called none: seeds
alone make as much. From {much} on it is called much.
"""
_SMALL = 0.003
_MUCH = 0.02
_FLAT = 0.005  # this near to its end a curve is called flat
# Settings that a comparison is about.
_NEGATIVES = {"loss.negatives", "loss.count"}
_SQUARED = {"model.norm", "model.squared", "model.bias"}


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
    text = _TOP.format(small=digits(_SMALL, 3), much=digits(_MUCH, 3))
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
        gain, printed = _difference(other.mrr, one.mrr), ""
        if one.number.paper and other.number.paper:
            theirs = (digits(each.mrr, 2) for each in (one.number.paper, other.number.paper))
            printed = f" (paper from {' to '.join(theirs)})"
        yield (
            f"{TITLES[data]}: {_how_much(gain)}; {name} {_goes(gain)} from {_spread(one)} to "
            f"{_spread(other)}, {signed(gain)}{printed}"
            f"{_besides(known, data, few, every, _NEGATIVES)}: "
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
        apart = _difference(found[best], found[worst])
        files = known.cite(*(f"{data}/{row}" for row in rows))
        verdict = f"{digits(apart, 3)} apart{', called none' if apart < _SMALL else ''}"
        printed = [cell.mrr for row in rows if (cell := known.get(data, row).number.paper)]
        if printed:
            verdict += f" (paper {digits(max(printed) - min(printed), 2)})"
        yield (
            f"{TITLES[data]}: {_how_alike(apart)}; from {TITLES[worst]}, "
            f"{_spread(known.get(data, worst))}, to {TITLES[best]}, "
            f"{_spread(known.get(data, best))}: {verdict}; {files}."
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
        most = (
            f"; most, {digits(found[row], 3)}, with {size:,}" if found[row] > end + _SMALL else ""
        )
        yield (
            f"{TITLES[data]}: {verdict}; {digits(found[first], 3)} with "
            f"{sizes[0][0]:,}, {digits(end, 3)} with all; within {digits(_FLAT, 3)} of that "
            f"{where}{most}: {files}."
        )


def _norms(known: _Known) -> Iterator[str]:
    for model, lost in LOST_BY_L2.items():
        rows = [f"norms/{model}-{norm}" for norm in ("l1", "l2", "squared")]
        ours = [known.get("fb15k", row) for row in rows]
        one, two, squared = (each.mrr for each in ours)
        name = {"transe": "TransE", "rotate": "RotatE"}[model]
        if one is None or two is None:
            yield _missing(known, "fb15k", rows[:2])
        else:
            loss = _difference(one, two)
            verdict = "yes, or more" if loss >= lost - _SMALL else "less"
            if loss < _SMALL:
                verdict = "no"
            yield (
                f"{name}: {verdict}; L1 {_spread(ours[0])}, L2 {_spread(ours[1])}, "
                f"{signed(-loss)} (paper −{digits(lost, 3)})"
                f"{_besides(known, 'fb15k', rows[0], rows[1], {'model.norm'})}: "
                f"{known.cite(*(f'fb15k/{row}' for row in rows[:2]))}."
            )
        if one is None or squared is None:
            yield _missing(known, "fb15k", rows[2:])
        else:
            yield (
                f"{name}: squared L2 with a bias an entity, a matrix product, has "
                f"{_spread(ours[2])}, {signed(_difference(squared, one))} to L1"
                f"{_besides(known, 'fb15k', rows[0], rows[2], _SQUARED)}: "
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
            f"goal, {digits(number.aim.goal, 3)}; by {_in_words(result)}: "
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
        if above := _above(our.mrrs, floor):
            why = f" On test {above}.{why}"
        if our.prints_as_the_paper:
            why = f" In the two digits that the paper prints it is {digits(our.mrr, 2)}.{why}"
        tried = known.results.tried(number)
        others = [
            f"{link(path.stem, path, known.docs)} {_each(other, 'valid_mrr', 4)}"
            for path, other in tried.items()
        ]
        rest = f" Valid of what else was tried: {', '.join(others)}" if others else ""
        if above := _above([mrr for other in tried.values() for mrr in other.values("mrr")], floor):
            rest += f"; on test {above}"
        rest += "." if others else ""
        yield (
            f"{TITLES[number.data]}: {TITLES[number.row]}, {_spread(our, 4)} where the floor is "
            f"{digits(floor, 3)}, by {_in_words(result)} ({known.cite(number.name)}).{why}{rest}"
        )
    if not missed:
        yield "Nothing that was run."


def _besides(known: _Known, data: str, one: str, other: str, meant: Set[str]) -> str:
    """What the recipes of two rows differ in besides what is `meant` to; nothing: in no more."""
    recipes = [recipe for row in (one, other) if (recipe := known.recipe(data, row)) is not None]
    if len(recipes) < 2:
        return ""
    mine, theirs = (what_counts(each).to_tables() for each in recipes)
    named = {
        f"{part}.{name}": f"{part} {name}" if name in ("name", "weight", "every") else name
        for part in ("model", "loss", "penalty", "optimizer", "training")  # what is learnt from
        for name in {**mine[part], **theirs[part]}
        if mine[part].get(name) != theirs[part].get(name)
    }
    words = [word.replace("_", " ") for name, word in named.items() if name not in meant]
    return f"; they differ in {', '.join(words)}, too" if words else ""


def _above(mrrs: Sequence[float], floor: float) -> str:
    """How many seeds hold a floor that their mean misses; nothing where none does."""
    count = sum(mrr >= floor for mrr in mrrs)
    return f"{count} of {len(mrrs)} seeds hold the floor" if count else ""


def _in_words(result: Result) -> str:
    """A result's recipe, and what valid said to it."""
    said = tomllib.loads(result.recipe)
    model, penalty, optimizer = said["model"], said["penalty"], said["optimizer"]
    words = [f"dim {model['dim']}"]
    if model["norm"] == 2:
        words.append("L2 norm")
    if said["loss"]["name"] != "softmax":
        words.append(said["loss"]["name"])
    if relations := said["loss"]["relation_weight"]:
        words.append(f"relation prediction {relations:g}")
    if penalty["name"] != "none":
        words.append(f"{penalty['name']} {penalty['weight']:g}")
    dropped = [model.get(f"{part}_dropout", 0) for part in ("entity", "relation")]
    if any(dropped):
        words.append("dropout {:g} and {:g}".format(*dropped))
    words += [
        f"{optimizer['name']} {optimizer['learning_rate']:g}",
        f"batches of {said['training']['batch_size']:,}",
        f"epoch {_each(result, 'best_epoch', 0)} of {said['training']['epochs']}",
        f"valid {_each(result, 'valid_mrr', 4)}",
    ]
    return ", ".join(words)


def _each(result: Result, name: str, places: int) -> str:
    """One number of each seed: recipes are compared seed by seed."""
    shown = [digits(each[name], places) for each in result.seeds if each[name] is not None]
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if shown[1:] else shown) or "not known"


def _missing(known: _Known, data: str, rows: Iterable[str]) -> str:
    lacking = [row for row in rows if known.mrr(data, row) is None]
    shown = ", ".join(f"`{row}`" for row in lacking[:4]) + (", …" if len(lacking) > 4 else "")
    return f"{TITLES.get(data, data)}: not run yet ({shown})."


def _spread(our: Beside, places: int = 3) -> str:
    spread = f" ± {digits(our.spread, places)}" if our.spread is not None else ""
    return f"{digits(our.mrr, places)}{spread}"


def _difference(one: float, other: float) -> float:
    """As it is printed, so that what is said of it is what a reader would say."""
    return round(one - other, 3)


def _how_much(gain: float) -> str:
    if gain >= _MUCH:
        return "yes"
    return "a little" if gain >= _SMALL else "no"


def _how_alike(apart: float) -> str:
    if apart < _SMALL:
        return "yes"
    return "nearly" if apart < _MUCH else "no"


def _goes(gain: float) -> str:
    if abs(gain) < _SMALL:
        return "does not move"
    return "rises" if gain > 0 else "falls"
