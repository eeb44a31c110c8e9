"""The figure shows each point that was run, with its spread."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest

from allneg.errors import BadRecipe
from allneg.paper import Number
from allneg.paper.beside import Beside
from allneg.paper.plot import _points, draw


def a_point(row: str, *mrrs: float) -> Beside:
    mean = sum(mrrs) / len(mrrs) if mrrs else None
    return Beside(Number("figure1", "fb15k", row), mrr=mean, mrrs=mrrs)


CURVE = [a_point("figure1/all", 0.7), a_point("figure1/k-100", 0.4, 0.6), a_point("figure1/k-200")]


def test_points_have_their_mean_and_spread_and_all_is_every_entity() -> None:
    assert _points("fb15k", CURVE) == [(100, 0.5, 0.4, 0.6), (14_951, 0.7, 0.7, 0.7)]


def test_both_pictures_are_written_with_the_data_sets_name(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the figure takes matplotlib")
    draw({"fb15k": CURVE, "wn18": [a_point("figure1/all", 0.9)]}, tmp_path)
    text = (tmp_path / "figure1.svg").read_text()
    assert ">FB15k<" in text
    assert ">WN18<" not in text  # one point is no curve
    assert (tmp_path / "figure1.png").read_bytes().startswith(b"\x89PNG")


def test_without_points_there_is_no_figure(tmp_path: Path) -> None:
    draw({"fb15k": [a_point("figure1/k-100")]}, tmp_path)
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *more: Any, **named: Any) -> Any:
        if name.partition(".")[0] == "matplotlib":
            raise ModuleNotFoundError(name)
        return real(name, *more, **named)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(BadRecipe, match="matplotlib, which is not installed"):
        draw({"fb15k": CURVE}, tmp_path)
