"""The same random tables in PyKEEN and here: the same scores, filtered ranks and metrics.

Tables hold small multiples of a half, so that both libraries' arithmetic is exact and every rank
must agree to the last tie. Four differences are known, and each has its test:

- RotatE: PyKEEN's score is the euclidean distance of the whole rows; the paper's, and ours, sums
  the moduli. Ours with `norm` 2 is PyKEEN's.
- SimplE: PyKEEN 1.11 compares a head's first half with a tail's first half, so that its score is
  the same from head to tail and back. The paper's, and ours, compares a head's first half with a
  tail's second one; told to take a tail's halves the other way round, PyKEEN agrees.
- Unseen entities: PyKEEN's vocabulary is that of train. Ours has all entities; the protocol
  `pykeen` leaves the others out, as queries and as rivals.
- Ties: PyKEEN's usual rank, "realistic", is our middle place; "optimistic" and "pessimistic" are
  our reports' numbers of these names.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

from allneg.evaluation import PROTOCOLS, Report
from allneg.evaluation.ranks import rank
from allneg.graph import Graph, read_graph
from allneg.graph.queries import Queries
from allneg.models import MODELS
from allneg.scoring import Shard, Tables, scores

pykeen_models = pytest.importorskip("pykeen.models", reason="peers: pykeen is not installed")

from pykeen.evaluation import RankBasedEvaluator  # noqa: E402
from pykeen.nn import Embedding  # noqa: E402
from pykeen.nn.init import PretrainedInitializer  # noqa: E402
from pykeen.nn.modules import SimplEInteraction  # noqa: E402
from pykeen.triples import CoreTriplesFactory  # noqa: E402

pytestmark = pytest.mark.peers

DIM = 6
N_TEST = 150  # triples ranked; their filter is the whole of FB15k-237
Rows = Callable[[Tensor], list[Tensor]]


def _whole(rows: Tensor) -> list[Tensor]:
    return [rows]


def _complex(rows: Tensor) -> list[Tensor]:
    re, im = rows.chunk(2, dim=1)
    return [torch.complex(re, im)]


def _halves(rows: Tensor) -> list[Tensor]:
    return [each.contiguous() for each in rows.chunk(2, dim=1)]


def _stored(rows: Tensor) -> Tensor:
    """As PyKEEN keeps complex rows."""
    return torch.view_as_real(rows) if rows.is_complex() else rows


class PaperSimplE(SimplEInteraction):  # type: ignore[misc]
    """SimplE with a tail's halves taken the other way round, as in the paper."""

    _tail_indices = (1, 0)


# Our rows as PyKEEN's representations, PyKEEN's model, and its settings.
PEERS: dict[str, tuple[Rows, Any, dict[str, Any]]] = {
    "transe": (_whole, "TransE", {"p": 1}),
    "distmult": (_whole, "DistMult", {}),
    "complex": (_complex, "ComplEx", {}),
    "simple": (_halves, PaperSimplE, {}),
}


@pytest.fixture(scope="module")
def graph() -> Graph:
    where = Path(__file__).parents[3] / "shared" / "data"
    if not (where / "fb15k-237.tar.xz").exists():
        pytest.skip("the published sets are not beside the repository (../shared/data)")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("ALLNEG_DATA", str(where))
        return read_graph("fb15k-237")


def tables(name: str, graph: Graph, coarse: bool = True) -> tuple[Any, Tables]:
    model = MODELS[name](DIM, 1.0)
    chance = Generator().manual_seed(7)
    shapes = (graph.n_entities, model.entity_width), (graph.n_relations, model.relation_width)
    if coarse:
        rows = [torch.randint(-2, 3, shape, generator=chance) / 2 for shape in shapes]
    else:
        rows = [torch.randn(shape, generator=chance) for shape in shapes]
    return model, Tables(*rows, Shard.whole(graph.n_entities), reciprocal=False)


def in_pykeen(
    entities: list[Tensor], relations: list[Tensor], interaction: Any, settings: dict[str, Any]
) -> Any:
    """PyKEEN's model with these rows."""
    n, r = len(entities[0]), len(relations[0])
    factory = CoreTriplesFactory.create(torch.tensor([[0, 0, 0]]), num_entities=n, num_relations=r)

    def embeddings(rows: list[Tensor]) -> list[Any]:
        return [
            Embedding(
                max_id=len(each),
                shape=each.shape[1:],
                initializer=PretrainedInitializer(_stored(each)),
                dtype=each.dtype,
            )
            for each in rows
        ]

    return pykeen_models.ERModel(
        triples_factory=factory,
        interaction=interaction,
        interaction_kwargs=settings,
        entity_representations=embeddings(entities),
        relation_representations=embeddings(relations),
        random_seed=0,
    ).eval()


def loaded(name: str, ours: Tables, n_entities: int | None = None) -> Any:
    parts, theirs, settings = PEERS[name]
    return in_pykeen(
        parts(ours.entities.detach()[:n_entities]), parts(ours.relations.detach()), theirs, settings
    )


def ranked(model: Any, graph: Graph, triples: Any) -> Any:
    """PyKEEN's filtered results for some triples of test."""
    known = [torch.from_numpy(graph.split(split)) for split in ("train", "valid", "test")]
    n = model.num_entities
    known = [each[(each[:, [0, 2]] < n).all(1)] for each in known]
    return RankBasedEvaluator(filtered=True).evaluate(
        model,
        torch.from_numpy(triples),
        additional_filter_triples=known,
        batch_size=16,
        use_tqdm=False,
    )


def few(graph: Graph) -> Graph:
    """The graph with the first triples of test, those that touch unseen entities among them."""
    unseen = ~(graph.seen[graph.test[:, 0]] & graph.seen[graph.test[:, 2]])
    test = np.concatenate([graph.test[unseen], graph.test[~unseen][:N_TEST]])
    return Graph(graph.name, graph.vocabulary, graph.train, graph.valid, test)


def report(model: Any, rows: Tables, graph: Graph, protocol: str) -> Report:
    """Our report on the few, filtered by the whole graph."""
    some = few(graph)
    # Test's other triples are known answers, too: they go to valid, which filters and is not asked.
    rest = Graph(
        graph.name,
        graph.vocabulary,
        graph.train,
        np.concatenate([graph.valid, graph.test]),
        some.test,
    )
    return Report.of(rank(model, rows, rest, "test", PROTOCOLS[protocol], 1 << 22), rest)


def same(ours: Report, theirs: Any) -> None:
    sides = {"both": ours.to_json(), **ours.by_side}
    for side, said in sides.items():
        told = {"inverse_harmonic_mean_rank": said["mrr"], "arithmetic_mean_rank": said["mr"]}
        told |= {f"hits_at_{k}": share for k, share in said["hits"].items()}
        for name, value in told.items():
            assert theirs.get_metric(f"{side}.realistic.{name}") == pytest.approx(value, rel=1e-6)
    for kind in ("optimistic", "pessimistic"):
        found = theirs.get_metric(f"both.{kind}.inverse_harmonic_mean_rank")
        assert found == pytest.approx(getattr(ours, kind)["mrr"], rel=1e-6)


@pytest.mark.parametrize("name", PEERS)
def test_scores_are_those_of_pykeen(graph: Graph, name: str) -> None:
    model, rows = tables(name, graph)
    theirs = loaded(name, rows)
    triples = torch.from_numpy(graph.test[:8])
    with torch.no_grad():
        tails = scores(model, rows, Queries.of(triples, "tail"))
        heads = scores(model, rows, Queries.of(triples, "head"))
        assert tails.equal(theirs.score_t(triples[:, :2]))
        assert heads.equal(theirs.score_h(triples[:, 1:]))
    assert tails.unique().numel() > 10


@pytest.mark.parametrize("name", PEERS)
def test_filtered_ranks_and_metrics_are_those_of_pykeen(graph: Graph, name: str) -> None:
    model, rows = tables(name, graph)
    ours = report(model, rows, graph, "allneg")
    assert ours.optimistic["mrr"] > ours.pessimistic["mrr"]  # there are ties
    same(ours, ranked(loaded(name, rows), graph, few(graph).test))


def test_without_unseen_entities_metrics_are_those_of_pykeens_vocabulary(graph: Graph) -> None:
    model, rows = tables("distmult", graph)
    n_seen = int(graph.seen.sum())
    assert graph.seen[:n_seen].all()  # ids follow train first
    assert n_seen < graph.n_entities
    ours = report(model, rows, graph, "pykeen")
    assert ours.unseen["dropped"] > 0
    assert ours.candidates == n_seen
    test = few(graph).test
    test = test[(test[:, [0, 2]] < n_seen).all(1)]
    same(ours, ranked(loaded("distmult", rows, n_seen), graph, test))


def test_rotate_with_norm_2_is_pykeens_and_with_norm_1_is_not(graph: Graph) -> None:
    _, rows = tables("rotate", graph, coarse=False)
    angles = rows.relations.detach()
    theirs = in_pykeen(
        _complex(rows.entities.detach()), [torch.polar(torch.ones_like(angles), angles)],
        "RotatE", {},
    )  # fmt: skip
    triples = torch.from_numpy(graph.test[:8])
    queries = Queries.of(triples, "tail")
    with torch.no_grad():
        wanted = theirs.score_t(triples[:, :2])
        euclidean = scores(MODELS["rotate"](DIM, 1.0, norm=2), rows, queries)
        moduli = scores(MODELS["rotate"](DIM, 1.0, norm=1), rows, queries)
    torch.testing.assert_close(euclidean, wanted, rtol=1e-5, atol=1e-5)
    assert ((moduli - wanted).abs() > 0.1).all()


def test_pykeens_own_simple_is_the_same_both_ways_and_ours_is_not(graph: Graph) -> None:
    model, rows = tables("simple", graph)
    halves = _halves(rows.entities.detach()), _halves(rows.relations.detach())
    theirs = in_pykeen(*halves, SimplEInteraction, {})
    triples = torch.from_numpy(graph.test[:8])
    turned = triples[:, [2, 1, 0]]
    with torch.no_grad():
        assert theirs.score_hrt(triples).equal(theirs.score_hrt(turned))
        ours = [scores(model, rows, Queries.of(each, "tail")) for each in (triples, turned)]
    there, back = (
        each.gather(1, tail.unsqueeze(1))
        for each, tail in zip(ours, (triples[:, 2], turned[:, 2]), strict=True)
    )
    assert not there.equal(back)
