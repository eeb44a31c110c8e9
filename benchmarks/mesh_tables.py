"""The tables of docs/many-gpus.md: measurements, and estimates of mesh_cost.py; see tables.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from mesh_cost import RATES, Cost, cost, sampled

from allneg.recipe import Mesh, Recipe
from allneg.recipes import find_recipe
from allneg.training.memory import Counts, plan

GRAPHS = {
    "wikidata5m": Counts(4_594_485, 822, 20_614_279, 5_163, 5_163),
    "freebase": Counts(86_054_151, 14_824, 304_000_000, 16_000, 16_000),
}
PLANS = {
    "wikidata5m": ("rows=1", "rows=2", "rows=4", "rows=8", "rows=4,batch=2", "batch=8"),
    "freebase": ("rows=64", "rows=32,batch=2", "rows=16,batch=4", "rows=8,batch=8"),
}
SAMPLE = 1000


def rates_table() -> str:
    return table(
        ("device", "TF32 products, Tflop/s", "memory, GB/s", "link in a machine, GB/s",
         "link between machines, GB/s", "memory, GB"),
        (
            (name, f"{rates.products['tf32'] / 1e12:.0f}", f"{rates.memory / 1e9:,.0f}",
             f"{rates.near / 1e9:.0f}", f"{rates.far / 1e9:g}", f"{rates.bytes / 1e9:.0f}")
            for name, rates in RATES.items()
        ),
    )  # fmt: skip


def measured_table(reports: list[dict[str, Any]]) -> str:
    out = ""
    for report in reports:
        if report.get("bench") != "mesh":
            continue
        out += (
            f"{report['machine']}, {report['cores']} cores, one thread per process, "
            f"torch {report['torch']}; "
            f"{report['entities']:,} entities, W = {2 * report['dim']}, "
            f"B = {report['batch_size']}:\n\n"
        )
        out += table(
            ("mesh", "ms per step", "estimated", "products", "memory", "rows", "batch", "other",
             "bytes sent", "estimated"),
            (_measured(row) for row in report["rows"]),
        )  # fmt: skip
    return out


def _measured(row: dict[str, Any]) -> list[str]:
    return [
        row["mesh"],
        f"{row['milliseconds']:.0f}",
        f"{row['predicted']:.0f}",
        *(f"{took:.1f}" for took in row["parts"].values()),
        f"{row['sent']:,}",
        f"{row['predicted_sent']:,}",
    ]


def steps_table(reports: list[dict[str, Any]]) -> str:
    """Measured and estimated steps of many sizes on one H200."""
    report = next(report for report in reports if "scaling" in report)
    found: dict[tuple[int, ...], dict[str, float]] = {}
    for row in report["rows"]:
        sizes = (row["b"], row["n"], row["w"])
        found.setdefault(sizes, {})[row["precision"]] = row["milliseconds"]
    rows = []
    for (b, n, w), took in sorted(found.items()):
        cells = [f"{b:,}", f"{n:,}", f"{w:,}"]
        for precision, milliseconds in sorted(took.items(), reverse=True):
            estimate = _step(b, n, w, precision)
            cells += [f"{milliseconds:.2f}", f"{estimate.step_seconds * 1e3:.2f}"]
        rows.append(cells)
    names = ("TF32, ms", "estimated", "BF16, ms", "estimated")
    head = f"{report['machine']}, torch {report['torch']}, ComplEx-N3 with AdaGrad:\n\n"
    return head + table(("B", "N", "W", *names), rows)


def _step(b: int, n: int, w: int, precision: str) -> Cost:
    settings = [
        f"model.dim={w // 2}", f"training.batch_size={b}", f"hardware.precision={precision}",
    ]  # fmt: skip
    recipe = Recipe().with_settings(settings)
    return cost(recipe, Counts(n, 237, b), Mesh(), RATES["h200"])


def plan_table(name: str) -> str:
    rows = []
    for text in PLANS[name]:
        mesh = Mesh.read(text)
        estimate = _cost(name, mesh)
        peak = plan(_recipe(name), GRAPHS[name], torch.device("cuda"), mesh).peak
        fits = "" if peak <= RATES["h200"].bytes else " (does not fit)"
        seconds = estimate.seconds.values()
        rows.append((
            text, f"{peak / 1e9:.1f}{fits}", *(f"{part * 1e3:.2f}" for part in seconds),
            _time(estimate.epoch_seconds),
        ))  # fmt: skip
    dim, size = _recipe(name).model.dim, _recipe(name).training.batch_size
    return f"ComplEx, dim {dim}, B = {size:,}, H200; milliseconds per step:\n\n" + table(
        ("mesh", "GB per device", "products", "memory", "rows", "batch", "other", "epoch"),
        rows,
    )  # fmt: skip


def sampling_table() -> str:
    """How much faster steps with sampled negatives are, by batch size."""
    rows = []
    for size in (125, 250, 500, 1000, 2000, 4000, 8000):
        recipe = _recipe("wikidata5m").with_settings([f"training.batch_size={size}"])
        mesh, rates = Mesh(rows=8), RATES["h200"]
        exact = cost(recipe, GRAPHS["wikidata5m"], mesh, rates)
        few = cost(sampled(recipe, SAMPLE), GRAPHS["wikidata5m"], mesh, rates)
        rows.append((
            f"{size:,}", _time(exact.epoch_seconds), _time(few.epoch_seconds),
            f"{exact.epoch_seconds / few.epoch_seconds:.1f}",
        ))  # fmt: skip
    return table(("B", "epoch, all entities", f"epoch, {SAMPLE:,} shared negatives", "ratio"), rows)


def _cost(name: str, mesh: Mesh) -> Cost:
    return cost(_recipe(name), GRAPHS[name], mesh, RATES["h200"])


def _recipe(name: str) -> Recipe:
    return Recipe.read(find_recipe(f"plans/{name}"))


def _time(seconds: float) -> str:
    if seconds >= 5400:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.1f} min" if seconds >= 90 else f"{seconds:.0f} s"


def table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    columns = list(columns)
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


# By the name between the markers of a page.
TABLES: dict[str, Callable[[list[dict[str, Any]]], str]] = {
    "rates": lambda _: f"\n{rates_table()}\n",
    "measured": lambda reports: f"\n{measured_table(reports)}\n",
    "steps": lambda reports: f"\n{steps_table(reports)}\n",
    "sampling": lambda _: f"\n{sampling_table()}\n",
    "wikidata5m": lambda _: f"\n{plan_table('wikidata5m')}\n",
    "freebase": lambda _: f"\n{plan_table('freebase')}\n",
}
