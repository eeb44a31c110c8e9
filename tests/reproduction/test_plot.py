"""The figure shows every point with a result, and its spread over seeds."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from reproduction.plot import _point, draw
from reproduction.published import Ours

from allneg.errors import ResourceError
from allneg.recipe import Recipe
from allneg.reproduce import Cell, Result


@pytest.fixture
def curve(entry: Callable[..., dict[str, Any]]) -> list[Ours]:
    def point(settings: list[str], *mrrs: float) -> Ours:
        entries = [entry(mrr, seed) for seed, mrr in enumerate(mrrs)]
        recipe = Recipe().with_settings(settings).to_toml()
        result = Result("fb15k", "figure1/x", recipe, entries)
        return Ours.of(Cell("figure1", "fb15k", "figure1/x"), result)

    sampled = ["loss.negatives=shared", "loss.n_negatives=10"]
    return [point([], 0.7), point(sampled, 0.4, 0.6)]


def test_a_point_has_its_mean_minimum_and_maximum(curve: list[Ours]) -> None:
    assert [_point(ours) for ours in curve] == [(12, 0.7, 0.7, 0.7), (10, 0.5, 0.4, 0.6)]


def test_both_files_are_written_and_deleted_when_there_is_no_curve(
    curve: list[Ours], tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib", reason="the figure needs matplotlib")
    svg, png = draw({"fb15k": curve, "wn18": curve}, tmp_path)
    assert ">FB15k<" in svg.read_text()
    assert ">WN18<" in svg.read_text()
    assert png.read_bytes().startswith(b"\x89PNG")
    assert draw({}, tmp_path) == []
    assert not list(tmp_path.iterdir())


def test_a_missing_matplotlib_is_an_error(
    curve: list[Ours], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def refuse(name: str, *more: Any, **named: Any) -> Any:
        if name.partition(".")[0] == "matplotlib":
            raise ModuleNotFoundError(name)
        return real(name, *more, **named)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ResourceError, match="figure1 needs matplotlib"):
        draw({"fb15k": curve}, tmp_path)
