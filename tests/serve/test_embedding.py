from __future__ import annotations

import importlib.util
import sys

import numpy as np
import pytest
import torch

from allneg.errors import UsageError
from allneg.models import MODELS
from allneg.predict.scorer import EntityVectors
from allneg.serve.loaded_run import LoadedRun, colours, pca, tsne


def test_pca_finds_the_directions_of_a_full_decomposition() -> None:
    draw = torch.Generator().manual_seed(1)
    rows = torch.randn(300, 20, generator=draw) * torch.linspace(5, 0.1, 20) + 7
    found = pca(rows)
    centred = rows - rows.mean(0)
    expected = centred @ torch.linalg.svd(centred, full_matrices=False).Vh[:2].T
    for column in range(2):
        one, other = found[:, column], expected[:, column]
        cosine = (one @ other) / (one.norm() * other.norm())
        assert abs(float(cosine)) > 0.999
    assert float(found.abs().max()) == pytest.approx(1)
    assert found.equal(pca(rows))


@pytest.mark.parametrize("shape", [(1, 5), (2, 5), (5, 1), (3, 2)])
def test_few_rows_or_columns_still_have_points(shape: tuple[int, int]) -> None:
    points = pca(torch.arange(shape[0] * shape[1]).float().view(shape))
    assert points.shape == (shape[0], 2)
    assert points.isfinite().all()


def test_equal_rows_have_one_point() -> None:
    assert pca(torch.ones(4, 3)).abs().max() < 1e-3


def test_a_head_has_the_colour_of_its_most_common_answer() -> None:
    # Answer 9 has three heads, 8 two, 7 one; head 0 has 7 and 9.
    triples = np.array([[0, 0, 7], [0, 0, 9], [1, 0, 9], [2, 0, 9], [3, 0, 8], [4, 0, 8]])
    colour, top = colours(triples, np.arange(10), 10)
    assert top == [9, 8, 7]
    assert colour.tolist() == [0, 0, 0, 1, 1, 4, 4, 4, 4, 4]  # 4: after three answers and `other`


def test_past_nine_answers_the_rest_are_other() -> None:
    triples = np.array([[i, 0, 20 + i // 2] for i in range(20)])
    colour, top = colours(triples, np.arange(20), 40)
    assert len(top) == 9
    assert colour[:18].max() == 8
    assert colour[18:].tolist() == [9, 9]


def test_a_relation_without_facts_colours_nothing() -> None:
    colour, top = colours(np.zeros((0, 3), dtype=np.int64), np.arange(3), 3)
    assert (colour.tolist(), top) == ([1, 1, 1], [])


def test_without_opentsne_the_error_says_how_to_install_it(
    loaded: LoadedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "openTSNE", None)
    monkeypatch.setattr(loaded, "points", {})
    with pytest.raises(UsageError, match=r"t-SNE needs openTSNE: pip install 'allneg\[tsne\]'"):
        loaded.map(None, "tsne")


has_tsne = importlib.util.find_spec("openTSNE") is not None
needs_tsne = pytest.mark.skipif(not has_tsne, reason="openTSNE is not installed")


@needs_tsne
def test_tsne_keeps_groups_apart_and_is_the_same_each_time() -> None:
    draw = torch.Generator().manual_seed(0)
    rows = torch.randn(120, 10, generator=draw) + 20 * (torch.arange(120) % 2).unsqueeze(1)
    points = tsne(rows)
    middles = [points[some::2].mean(0) for some in (0, 1)]
    spread = max(float((points[some::2] - middles[some]).norm(dim=1).mean()) for some in (0, 1))
    assert float((middles[0] - middles[1]).norm()) > spread
    assert points.abs().max() == pytest.approx(1)
    assert torch.equal(tsne(rows), points)


@needs_tsne
def test_a_map_of_a_run_is_drawn_by_tsne(loaded: LoadedRun) -> None:
    drawn = loaded.map("in", "tsne")
    assert drawn.method == "tsne"
    assert len(drawn.points) == len(drawn.names) == 12
    assert np.isfinite(np.array(drawn.points)).all()
    assert drawn.points != loaded.map("in", "pca").points


def test_a_bias_is_not_part_of_the_direction() -> None:
    model = MODELS["transe"](2, 0.1, 2, True, True)
    rows = torch.tensor([[1.0, 0.0, 3.0], [0.0, 1.0, 3.0], [1.0, 0.0, -3.0]])
    vectors = EntityVectors(model.coordinates(rows))
    assert vectors.nearest(0, 2) == [(2, 1.0), (1, 0.0)]
    assert vectors.similarities(0, [1, 2]) == [0.0, 1.0]
