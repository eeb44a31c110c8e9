"""The tables of docs/many-gpus.md: measurements, and estimates of mesh_cost.py; see tables.py."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from mesh_cost import RATES, Cost, cost, sampled
from table_text import Report, machine_line, markdown_table, reports_of

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


def _rates(_: list[Report]) -> str:
    headings = ["device", "TF32 products, Tflop/s", "memory, GB/s", "link in a machine, GB/s"]
    headings += ["link between machines, GB/s", "memory, GB"]
    rows = (
        [name, f"{rates.products['tf32'] / 1e12:.0f}", f"{rates.memory / 1e9:,.0f}",
         f"{rates.near / 1e9:.0f}", f"{rates.far / 1e9:g}", f"{rates.bytes / 1e9:.0f}"]
        for name, rates in RATES.items()
    )  # fmt: skip
    return markdown_table(headings, rows)


def _measured(reports: list[Report]) -> str:
    out = ""
    headings = ["mesh", "ms per step", "estimated", "products", "memory", "rows", "batch", "other"]
    for report in (report for report in reports if report.get("bench") == "mesh"):
        rows = (
            [row["mesh"], f"{row['milliseconds']:.0f}", f"{row['predicted']:.0f}",
             *(f"{took:.1f}" for took in row["parts"].values()), row["sent"], row["predicted_sent"]]
            for row in report["rows"]
        )  # fmt: skip
        caption = f"{report['machine']}, {report['cores']} cores, one thread per process, "
        caption += f"torch {report['torch']}; {report['entities']:,} entities, "
        caption += f"W = {2 * report['dim']}, B = {report['batch_size']}"
        out += markdown_table([*headings, "bytes sent", "estimated"], rows, caption=caption)
    return out


def _steps(reports: list[Report]) -> str:
    """Measured and estimated steps of many sizes on one H200."""
    (report,) = reports_of(reports, "scaling")
    found: dict[tuple[int, int, int], dict[str, float]] = {}
    for row in report["rows"]:
        took = found.setdefault((row["b"], row["n"], row["w"]), {})
        took[row["precision"]] = row["milliseconds"]
    rows = []
    for (b, n, w), took in sorted(found.items()):
        cells = []
        for precision, milliseconds in sorted(took.items(), reverse=True):
            estimate = _step(b, n, w, precision)
            cells += [f"{milliseconds:.2f}", f"{estimate.step_seconds * 1e3:.2f}"]
        rows.append([b, n, w, *cells])
    headings = ("B", "N", "W", "TF32, ms", "estimated", "BF16, ms", "estimated")
    caption = f"{machine_line(report)}, ComplEx-N3 with AdaGrad"
    return markdown_table(headings, rows, caption=caption)


def _step(b: int, n: int, w: int, precision: str) -> Cost:
    settings = [
        f"model.dim={w // 2}", f"training.batch_size={b}", f"hardware.precision={precision}",
    ]  # fmt: skip
    recipe = Recipe().with_settings(settings)
    return cost(recipe, Counts(n, 237, b), Mesh(), RATES["h200"])


def _plan(_: list[Report], name: str) -> str:
    """Memory and time of a step with different meshes."""
    recipe, counts, h200 = _recipe(name), GRAPHS[name], RATES["h200"]
    rows = []
    for text in PLANS[name]:
        mesh = Mesh.read(text)
        estimate = cost(recipe, counts, mesh, h200)
        peak = plan(recipe, counts, torch.device("cuda"), mesh).peak
        fits = "" if peak <= h200.bytes else " (does not fit)"
        times = [f"{part * 1e3:.2f}" for part in estimate.seconds.values()]
        rows.append([text, f"{peak / 1e9:.1f}{fits}", *times, _time(estimate.epoch_seconds)])
    dim, size = recipe.model.dim, recipe.training.batch_size
    headings = ("mesh", "GB per device", "products", "memory", "rows", "batch", "other", "epoch")
    caption = f"ComplEx, dim {dim}, B = {size:,}, H200; milliseconds per step"
    return markdown_table(headings, rows, caption=caption)


def _sampling(_: list[Report]) -> str:
    """How much faster steps with sampled negatives are, by batch size."""
    base, mesh, rows = _recipe("wikidata5m"), Mesh(rows=8), []
    for size in (125, 250, 500, 1000, 2000, 4000, 8000):
        recipe = base.with_settings([f"training.batch_size={size}"])
        exact, few = (
            cost(each, GRAPHS["wikidata5m"], mesh, RATES["h200"]).epoch_seconds
            for each in (recipe, sampled(recipe, SAMPLE))
        )
        rows.append([size, _time(exact), _time(few), f"{exact / few:.1f}"])
    headings = ("B", "epoch, all entities", f"epoch, {SAMPLE:,} shared negatives", "ratio")
    return markdown_table(headings, rows)


def _recipe(name: str) -> Recipe:
    return Recipe.read(find_recipe(f"plans/{name}"))


def _time(seconds: float) -> str:
    if seconds >= 5400:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.1f} min" if seconds >= 90 else f"{seconds:.0f} s"


# By the name between the markers of a page.
TABLES: dict[str, Callable[[list[Report]], str]] = {
    "rates": _rates,
    "measured": _measured,
    "steps": _steps,
    "sampling": _sampling,
    "wikidata5m": partial(_plan, name="wikidata5m"),
    "freebase": partial(_plan, name="freebase"),
}
