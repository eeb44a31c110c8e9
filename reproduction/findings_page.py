"""docs/findings.md: which claims of the paper hold.

The sentences are templates; numbers, verdicts and links come from result files.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from allneg.reproduce import UNAVAILABLE, Cell
from reproduction.published import (
    ABLATIONS,
    BEST_SINGLE,
    FLAT_FROM,
    LOST_BY_L2,
    PUBLIC_L1,
    TITLES,
    Ours,
    Published,
    is_point,
)
from reproduction.text import (
    LARGE,
    SMALL,
    difference,
    digits,
    floor_count,
    in_words,
    link,
    listed,
    mean,
    other_differences,
    per_seed,
    signed,
)

_TOP = f"""# Findings

This page checks the claims of Jain et al. (2020) on each dataset. `python -m reproduction` writes
it from the result files that each sentence links to. All numbers are filtered test MRR: the mean
over seeds ± the standard deviation.

For files in results/seen, the weights were selected with the
[earlier filter](evaluation.md#how-weights-are-selected) of valid, `seen`.

The [floor](results.md#floors-and-goals) of a result is the paper's number, or a higher published
one. Its goal is the best public number of that kind, or more.

Differences below {digits(SMALL, 3)} count as none, because seeds alone differ by that much.
Differences of {digits(LARGE, 3)} or more count as large.
"""
_FLAT = 0.005  # a curve is flat where it is this close to its last point
# Settings that a comparison is about.
_NEGATIVES = {"loss.negatives", "loss.n_negatives"}
_NORM = {"model.norm"}
_SQUARED = {*_NORM, "model.squared", "model.bias"}


def findings_page(published: Published) -> str:
    """The whole page."""
    points = " and ".join(digits(LOST_BY_L2[model], 3) for model in ("transe", "rotate"))
    sections = (
        ("Do older models improve much with all entities as negatives?", _bilinear(published)),
        ("Which single change makes the difference?", _ablation(published)),
        ("Do the models then have almost the same MRR?", _apart(published)),
        ("Does RotatE improve as well?", _gains(published, "rotate", "rotate-v2")),
        (f"Is the curve of figure 1 flat from about {FLAT_FROM:,} negatives?", _flat(published)),
        (f"Does L2 lower the MRR of TransE and RotatE on FB15k by {points}?", _norms(published)),
        ("Beyond the paper", _beyond(published)),
        ("Results below their floor", _missed(published)),
    )
    text = _TOP
    for title, sentences in sections:
        text += f"\n## {title}\n\n" + "".join(f"- {sentence}\n" for sentence in sentences)
    return text


def _rows(published: Published, rows: Sequence[str]) -> Iterator[list[Ours]]:
    """These rows on every dataset that has them all."""
    for data in dict.fromkeys(cell.data for cell in published.cells):
        found = [ours for row in rows if (ours := published.get(data, row)) is not None]
        if data not in UNAVAILABLE and len(found) == len(rows):
            yield found


def _missing(several: Sequence[Ours]) -> str:
    rows = [f"`{ours.cell.row}`" for ours in several if ours.mrr is None]
    shown = ", ".join(rows[:4]) + (", …" if len(rows) > 4 else "")
    return f"{TITLES[several[0].cell.data]}: not run yet ({shown})."


def _mean(ours: Ours, count: int = 3) -> str:
    return mean(ours.mrr, ours.spread, count)


def _bilinear(published: Published) -> Iterator[str]:
    few = [ours for pair in _rows(published, ("simple", "complex")) for ours in pair]
    if dims := sorted({ours.recipe.model.dim for ours in few if ours.recipe is not None}):
        yield (
            f"The rows with few negatives have dim {listed([str(dim) for dim in dims])}. The paper "
            "trains ComplEx with few negatives at dim 2000 for up to 1000 epochs. Each recipe has "
            "the best validation MRR of those that were tried, so the gain is not due to the "
            "negatives alone: each line lists the other settings in which its two recipes differ. "
            "In figure 1 and in the ablation, recipes differ in one setting only."
        )
    yield from _gains(published, "simple", "simple-v2")
    yield from _gains(published, "complex", "complex-v2")


def _gains(published: Published, few: str, every: str) -> Iterator[str]:
    for one, other in _rows(published, (few, every)):
        if one.mrr is None or other.mrr is None:
            yield _missing((one, other))
            continue
        gain, paper = difference(other.mrr, one.mrr), ""
        if one.cell.paper and other.cell.paper:
            numbers = (digits(ours.cell.paper.mrr, 2) for ours in (one, other) if ours.cell.paper)
            paper = f" (paper: {' to '.join(numbers)})"
        verdict = "yes" if gain >= LARGE else "a little" if gain >= SMALL else "no"
        weak = ""
        if one.target.floor is not None and one.mrr < one.target.floor:
            weak = " The row with few negatives is below its floor, so the gain is overestimated."
        moves = "rises" if gain > 0 else "falls"
        moves = "stays about the same," if abs(gain) < SMALL else moves
        yield (
            f"{TITLES[one.cell.data]}: {verdict}. {one.title.partition(' (')[0]} {moves} "
            f"from {_mean(one)} to {_mean(other)}, {signed(gain)}{paper}.{weak}"
            f"{other_differences(one.recipe, other.recipe, _NEGATIVES)} "
            f"Files: {published.cite(one.cell, other.cell)}."
        )


def _ablation(published: Published) -> Iterator[str]:
    """What each change of one thing costs; the rows differ in nothing else."""
    for row, (base, changed) in ABLATIONS.items():
        for one, other in _rows(published, (base, row)):
            if one.mrr is None or other.mrr is None:
                yield _missing((one, other))
                continue
            gain = difference(other.mrr, one.mrr)
            size = "no difference" if abs(gain) < SMALL else "a small difference"
            size = "a large difference" if abs(gain) >= LARGE else size
            yield (
                f"{TITLES[one.cell.data]}: {size}. {other.title} has {_mean(other)}, and "
                f"{one.title} has {_mean(one)}: {signed(gain)}."
                f"{other_differences(one.recipe, other.recipe, changed)} "
                f"Files: {published.cite(other.cell, one.cell)}."
            )


def _apart(published: Published) -> Iterator[str]:
    for found in _rows(published, ("simple-v2", "complex-v2", "complex-n3")):
        numbers = {ours.mrr: ours for ours in found if ours.mrr is not None}
        if any(ours.mrr is None for ours in found):
            yield _missing(found)
            continue
        best, worst = numbers[max(numbers)], numbers[min(numbers)]
        apart = difference(max(numbers), min(numbers))
        verdict = "yes" if apart < SMALL else "nearly" if apart < LARGE else "no"
        printed = [ours.cell.paper.mrr for ours in found if ours.cell.paper]
        paper = f" (paper: {digits(max(printed) - min(printed), 2)})" if printed else ""
        yield (
            f"{TITLES[best.cell.data]}: {verdict}. {worst.title} has {_mean(worst)} and "
            f"{best.title} has {_mean(best)}: a difference of {digits(apart, 3)}"
            f"{', which counts as none' if apart < SMALL else ''}{paper}. "
            f"Files: {published.cite(*(ours.cell for ours in found))}."
        )


def _flat(published: Published) -> Iterator[str]:
    points: dict[str, list[Ours]] = {}
    for cell in published.cells:
        if is_point(cell):
            points.setdefault(cell.data, []).append(published.ours(cell))
    for data, several in points.items():
        found = {_size(ours.cell): ours.mrr for ours in several if ours.mrr is not None}
        if len(found) < len(several):
            yield _missing(several)
            continue
        *sizes, last = sorted(found)
        end, least = found[last], None
        for size in reversed(sizes):
            if abs(found[size] - end) > _FLAT:
                break
            least = size
        below = max((size for size in sizes if size < (least or math.inf)), default=0)
        if least is None or below >= FLAT_FROM:
            verdict = "no"
        elif least <= FLAT_FROM:
            verdict = "yes"
        else:
            verdict = f"unclear, because nothing was run between {below:,} and {least:,}"
        most = max(sizes, key=lambda size: found[size])
        best = ""
        if found[most] > end + SMALL:
            best = f" The maximum is {digits(found[most], 3)}, with {most:,} negatives."
        flat = f"from {least:,} negatives on" if least is not None else "only for all entities"
        folder = published.path(several[-1].cell).parent
        files = link(f"{data}/figure1", folder, published.docs)
        yield (
            f"{TITLES[data]}: {verdict}. MRR is {digits(found[sizes[0]], 3)} with {sizes[0]:,} "
            f"negatives and {digits(end, 3)} with all entities. It is within {digits(_FLAT, 3)} of "
            f"the latter {flat}.{best} Files: {files}."
        )


def _size(cell: Cell) -> float:
    """The number of negatives of a point; infinity for all entities."""
    return math.inf if cell.row == "figure1/all" else int(cell.row.partition("-")[2])


def _norms(published: Published) -> Iterator[str]:
    for model, lost in LOST_BY_L2.items():
        rows = [f"norms/{model}-{norm}" for norm in ("l1", "l2", "squared")]
        for one, two, squared in _rows(published, rows):
            name = one.title.partition(" (")[0]
            if one.mrr is None or two.mrr is None:
                yield _missing((one, two))
            else:
                loss, public = difference(one.mrr, two.mrr), PUBLIC_L1[model]
                verdict = "yes, or more" if loss >= lost - SMALL else "less"
                weak = ""
                if public - one.mrr >= LARGE:
                    verdict = "not established"
                    weak = f" Our L1 result is weak: a public recipe reaches {digits(public, 3)}."
                elif loss < SMALL:
                    verdict = "no"
                yield (
                    f"{name}: {verdict}. L1 has {_mean(one)} and L2 has {_mean(two)}, "
                    f"{signed(-loss)} (paper: −{digits(lost, 3)}).{weak}"
                    f"{other_differences(one.recipe, two.recipe, _NORM)} "
                    f"Files: {published.cite(one.cell, two.cell)}."
                )
            if one.mrr is None or squared.mrr is None:
                yield _missing((one, squared))
            else:
                yield (
                    f"{name}: squared L2 with one bias per entity, a matrix product, has "
                    f"{_mean(squared)}, {signed(difference(squared.mrr, one.mrr))} compared with "
                    f"L1.{other_differences(one.recipe, squared.recipe, _SQUARED)} "
                    f"File: {published.cite(squared.cell)}."
                )


def _beyond(published: Published) -> Iterator[str]:
    for cell in published.cells:
        ours = published.ours(cell)
        goal = ours.target.goal
        if cell.part not in ("beyond", "ensemble") or goal is None:
            continue
        if ours.result is None or ours.mrr is None:
            yield _missing([ours])
            continue
        reached = "reaches its goal of" if ours.mrr >= goal else "is below its goal of"
        yield (
            f"{TITLES[cell.data]}: {ours.title} has {digits(ours.mrr, 3)} and {reached} "
            f"{digits(goal, 3)}. {_recipe(ours)} File: {published.cite(cell)}."
        )
    for data, goal in BEST_SINGLE.items():
        best = published.best_single(data)
        if best is not None and best.mrr is not None:
            reached = "reaches the goal of" if best.mrr >= goal else "is below the goal of"
            yield (
                f"{TITLES[data]}: {best.title} has the best validation MRR of all single models. "
                f"On test it has {digits(best.mrr, 3)} and {reached} {digits(goal, 3)}. "
                f"{_recipe(best)} File: {published.cite(best.cell)}."
            )


def _recipe(ours: Ours) -> str:
    if ours.cell.members:
        return f"Members: {', '.join(TITLES[member.row] for member in ours.cell.members)}."
    if ours.result is None:
        return ""
    last = ours.result.made_by.training.epochs
    capped = all(epoch == last for epoch in ours.values("best_epoch"))
    longer = " The best epoch is the last one, so longer training may help." if capped else ""
    return f"Recipe: {in_words(ours.result)}.{longer}"


def _missed(published: Published) -> Iterator[str]:
    missed = False
    for cell in published.cells:
        ours = published.ours(cell)
        floor = ours.target.floor
        if ours.result is None or ours.mrr is None or floor is None or ours.mrr >= floor:
            continue
        missed = True
        rounded = tried = ""
        if ours.rounds_to_the_paper and cell.paper is not None:
            verb = "exceeds" if round(ours.mrr, 2) > cell.paper.mrr else "reaches"
            rounded = f" Rounded to two digits, it {verb} the paper's {digits(cell.paper.mrr, 2)}."
        if others := published.tried(cell):
            valid = ", ".join(
                f"{link(path.stem, path, published.docs)} {per_seed(other, 'valid_mrr', 4)}"
                for path, other in others.items()
            )
            mrrs = [mrr for other in others.values() for mrr in other.values("mrr")]
            count = floor_count(mrrs, floor, "of their seeds")
            tried = f" Validation MRR of other configurations: {valid}.{count}"
        yield (
            f"{TITLES[cell.data]}: {ours.title} has {_mean(ours, 4)}; its floor is "
            f"{digits(floor, 3)}.{rounded}{floor_count(ours.values('mrr'), floor)}"
            f"{' ' * bool(ours.target.why)}{ours.target.why} {_recipe(ours)} "
            f"File: {published.cite(cell)}.{tried}"
        )
    if not missed:
        yield "All results reach their floor."
