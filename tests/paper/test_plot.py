"""The figure shows each point that was run, with its spread."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest

from allneg.errors import RecipeError
from allneg.paper import Number
from allneg.paper.beside import Beside
from allneg.paper.plot import _point, draw


def a_point(negatives: int, *mrrs: float) -> Beside:
    return Beside(Number("figure1", "fb15k", "a point"), mrrs=mrrs, negatives=negatives)


CURVE = [a_point(14_951, 0.7), a_point(100, 0.4, 0.6)]


def test_points_have_their_mean_and_spread() -> None:
    assert [_point(each) for each in CURVE] == [(14_951, 0.7, 0.7, 0.7), (100, 0.5, 0.4, 0.6)]


@pytest.mark.parametrize("quick", [False, True])
def test_both_pictures_are_written_with_the_data_sets_name(tmp_path: Path, quick: bool) -> None:
    pytest.importorskip("matplotlib", reason="the figure takes matplotlib")
    written = draw({"fb15k": CURVE, "wn18": CURVE}, tmp_path, quick)
    assert written == [tmp_path / "figure1.svg", tmp_path / "figure1.png"]
    text = written[0].read_text()
    assert ">FB15k<" in text
    assert ">WN18<" in text
    assert ("QUICK" in text) == quick
    assert written[1].read_bytes().startswith(b"\x89PNG")


def test_without_points_there_is_no_figure(tmp_path: Path) -> None:
    (tmp_path / "figure1.svg").write_text("an older one")
    assert draw({}, tmp_path) == []
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *more: Any, **named: Any) -> Any:
        if name.partition(".")[0] == "matplotlib":
            raise ModuleNotFoundError(name)
        return real(name, *more, **named)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(RecipeError, match="matplotlib, which is not installed"):
        draw({"fb15k": CURVE}, tmp_path)
