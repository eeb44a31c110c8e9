"""The plot of a tuning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from allneg.recipe import Recipe
from allneg.tuning.halving import Progress
from allneg.tuning.plot import plot_curves
from allneg.tuning.space import Trial, TrialStatus


def progress(model: str, *mrrs: float) -> Progress:
    recipe = Recipe.from_tables({"data": {"name": "countries"}, "model": {"name": model}})
    status = TrialStatus(Trial({"model.name": model}, recipe), "dropped", max(mrrs, default=None))
    return Progress(status, [{"epoch": i, "valid": {"mrr": m}} for i, m in enumerate(mrrs, 1)])


def test_models_differ_without_colour_and_epochs_are_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = []
    figure = pytest.importorskip("matplotlib.figure", reason="needs allneg[plots]")
    save = figure.Figure.savefig

    def keep(self: Any, *args: Any, **options: Any) -> None:
        figures.append(self)
        save(self, *args, **options)

    monkeypatch.setattr(figure.Figure, "savefig", keep)
    trials = [progress("complex", 0.1, 0.3), progress("rotate", 0.2, 0.25), progress("transe")]
    plot_curves("title", trials, tmp_path / "trials.png")
    [drawn] = figures
    [axes] = drawn.axes
    texts = [text.get_text() for text in drawn.legends[0].get_texts()]
    assert texts == ["best: complex", "complex", "rotate", "transe: not ranked"]
    assert len({line.get_marker() for line in axes.lines}) == 3
    assert all(tick == int(tick) for tick in axes.get_xticks())
