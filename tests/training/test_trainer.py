"""The gradients of a step against autograd of whole tables in float64, for every model and loss."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from allneg.errors import RecipeError
from allneg.graph import Graph
from allneg.graph.graph import Triples, Vocabulary
from allneg.graph.queries import SIDES, Queries
from allneg.models import MODELS
from allneg.recipe import Recipe
from allneg.runs.checkpoint import State
from allneg.scoring.distillation import pruned
from allneg.scoring.negatives import NegativeSample, draw_sample
from allneg.training.trainer import Trainer, class_weights
from naive_losses import one_loss

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
BF16 = "hardware.precision=bf16"
N, R = 11, 3
# (0, 0, ?) has three answers, (?, 1, 5) two, and 2 is related to itself.
TRIPLES = [
    (0, 0, 1), (0, 0, 2), (0, 0, 3), (4, 1, 5), (6, 1, 5), (2, 2, 2), (7, 0, 1), (8, 2, 9),
    (9, 2, 8),
]  # fmt: skip


@pytest.fixture(scope="module")
def graph() -> Graph:
    train: Triples = torch.tensor(TRIPLES).numpy()
    names = Vocabulary(tuple(f"e{i}" for i in range(N)), tuple(f"r{i}" for i in range(R)))
    return Graph("toy", names, train, train[:0], train[:0])


def both_sides() -> Queries:
    """All queries, for tails and heads mixed."""
    head, relation, tail = torch.tensor(TRIPLES).T
    side = torch.arange(2 * len(TRIPLES)) % 2
    known = torch.stack([head, tail], 1).flatten()
    answer = torch.stack([tail, head], 1).flatten()
    return Queries(side, known, relation.repeat_interleave(2), answer)


class Naive:
    """A step's loss by loops over queries and candidates, with parameters in float64."""

    def __init__(self, trainer: Trainer, queries: Queries, sample: NegativeSample) -> None:
        self.recipe, self.model, self.tables = trainer.recipe, trainer.model, trainer.tables
        self.queries, self.sample, self.regularizer = queries, sample, trainer.regularizer
        self.parameters = {
            name: parameter.detach().double().requires_grad_()
            for name, parameter in trainer.tables.named_parameters()
        }

    def value(self) -> Tensor:
        settings, entities = self.recipe.loss, self.parameters["entities"]
        weights, losses = [], []
        for i in range(len(self.queries)):
            query = self._query(i)
            answer = int(self.queries.answer[i])
            scores = self.model.kernel(query, entities)[0]
            ids, offsets = self._negatives(i)
            loss = one_loss(scores[answer], scores[ids] + offsets, settings)
            if settings.relation_weight:
                loss = loss + settings.relation_weight * self._relation_loss(i)
            losses.append(loss)
            weights.append(self._weight(i))
        weight = torch.tensor(weights, dtype=torch.float64)
        total = (torch.stack(losses) * weight / weight.sum()).sum()
        return total if self.regularizer is None else total + self._penalty()

    def _rows(self, i: int) -> tuple[Tensor, Tensor, Tensor]:
        """Rows of the known entity, the relation and the answer, (1, W) each."""
        queries, relation = self.queries, int(self.queries.relation[i])
        if self.tables.reciprocal and queries.side[i] == 1:
            relation += R
        ids = [int(queries.entity[i])], [int(queries.answer[i])]
        entities, relations = self.parameters["entities"], self.parameters["relations"]
        return entities[ids[0]], relations[[relation]], entities[ids[1]]

    def _query(self, i: int) -> Tensor:
        entity, relation, _ = self._rows(i)
        if self.sample.entity_mask is not None:
            entity = entity * self.sample.entity_mask[i]
        if self.sample.relation_mask is not None:
            relation = relation * self.sample.relation_mask[i]
        if "shared" in self.parameters:
            relation = self.model.combine(relation, self.parameters["shared"])
        if self.tables.reciprocal or self.queries.side[i] == 0:
            return self.model.tail_query(entity, relation)
        return self.model.head_query(entity, relation)

    def _negatives(self, i: int) -> tuple[list[int], Tensor]:
        """The negatives of a query, and what is added to their scores."""
        settings, sample, answer = self.recipe.loss, self.sample, int(self.queries.answer[i])
        offsets = dict.fromkeys(range(N), 0.0)
        if sample.per_query is not None:
            ids = sample.per_query[i, 1:].tolist()
        elif sample.shared is not None:
            drawn, answers = set(sample.shared.tolist()), set(sample.answers.tolist())
            ids = sorted(drawn | answers if settings.in_batch_negatives else drawn)
            if settings.correction:
                factor = (N - len(answers)) / max(1, len(drawn - answers))
                offsets |= dict.fromkeys(drawn - answers, torch.tensor(factor).log().item())
        else:
            ids = list(range(N))
        right = self._known(i) if settings.mask_known else set()
        ids = [e for e in ids if e != answer and e not in right]
        return ids, torch.tensor([offsets[e] for e in ids], dtype=torch.float64)

    def _triple(self, i: int) -> tuple[int, int, int]:
        entity, relation, answer = (
            int(ids[i]) for ids in (self.queries.entity, self.queries.relation, self.queries.answer)
        )
        return (entity, relation, answer) if self.queries.side[i] == 0 else (
            answer, relation, entity
        )  # fmt: skip

    def _known(self, i: int) -> set[int]:
        head, relation, tail = self._triple(i)
        if self.queries.side[i] == 0:
            return {t for h, r, t in TRIPLES if (h, r) == (head, relation)}
        return {h for h, r, t in TRIPLES if (r, t) == (relation, tail)}

    def _weight(self, i: int) -> float:
        if self.recipe.loss.class_weights:
            counts = [sum((h == e) + (t == e) for h, _, t in TRIPLES) for e in range(N)]
            return 0.1 + 0.9 * counts[int(self.queries.answer[i])] / max(counts)
        if self.recipe.loss.subsampling:
            head, relation, tail = self._triple(i)
            count = sum((h, r) == (head, relation) for h, r, _ in TRIPLES)
            count += sum((r, t) == (relation, tail) for _, r, t in TRIPLES)
            return (count + 6) ** -0.5  # RotatE's code counts each pair from 4 on
        return 1.0

    def _head_and_tail(self, i: int) -> tuple[Tensor, Tensor]:
        """With reciprocal relations, the known entity always acts as the head."""
        entity, _, answer = self._rows(i)
        if self.tables.reciprocal or self.queries.side[i] == 0:
            return entity, answer
        return answer, entity

    def _relation_loss(self, i: int) -> Tensor:
        relations = self.parameters["relations"]
        scores = (self.model.relation_query(*self._head_and_tail(i)) @ relations.T)[0]
        row = int(self.queries.relation[i])
        row += R if self.tables.reciprocal and self.queries.side[i] == 1 else 0
        return -scores.log_softmax(0)[row]

    def _penalty(self) -> Tensor:
        total, n = torch.zeros((), dtype=torch.float64), len(self.queries)
        for i in range(n):
            head, tail = self._head_and_tail(i)
            relation = self._rows(i)[1]
            if self.regularizer.uses_queries and "shared" in self.parameters:
                relation = self.model.combine(relation, self.parameters["shared"])
            total = total + self.regularizer.penalty(self.model, head, relation, tail).sum()
        return self.regularizer.weight * total / n


def check_gradients(graph: Graph, *settings: str) -> None:
    """Value and gradients of a step are those of the loops, to the rounding of float32."""
    common = ["model.dim=3", "model.scale=0.8", "regularizer.weight=0.1"]
    recipe = Recipe().with_settings([*common, "training.batch_size=18", *settings])
    trainer = Trainer(recipe, graph, CPU)
    queries = grouped_queries(trainer) if recipe.loss.grouped else both_sides()
    sample = NegativeSample()
    if trainer.plan.draws_sample:
        sample = draw_sample(recipe, trainer.model, queries, N, Generator().manual_seed(2))
    value = trainer.gradients(queries, sample)
    if recipe.loss.grouped and sample.entity_mask is not None:
        masks = sample.entity_mask[queries.group], sample.relation_mask[queries.group]
        sample = replace(sample, entity_mask=masks[0], relation_mask=masks[1])
    naive = Naive(trainer, queries.single(), sample)
    assert_exact(trainer, value, naive, naive.value())


def assert_exact(trainer: Trainer, value: Tensor, naive: Naive, truth: Tensor) -> None:
    """The loss and the gradients of the tables are those of the naive loss."""
    truth.backward()
    torch.testing.assert_close(value.double(), truth.detach(), rtol=1e-5, atol=1e-6)
    for name, parameter in trainer.tables.named_parameters():
        true = naive.parameters[name].grad
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad.double(), true, rtol=1e-4, atol=2e-6)


FORMS = {
    **{name: [f"model.name={name}"] for name in MODELS},
    "transe-2": ["model.name=transe", "model.norm=2"],
    "rotate-2": ["model.name=rotate", "model.norm=2"],
    "transe-bias": ["model.name=transe", "model.norm=2", "model.squared=true", "model.bias=true"],
    "rote-bias": ["model.name=rote", "model.norm=2", "model.squared=true", "model.bias=true"],
}
NOT_RECIPROCAL = "model.reciprocal=false"
SHARED = ["loss.negatives=shared", "loss.n_negatives=4"]
PER_QUERY = ["loss.negatives=per_query", "loss.n_negatives=5"]
MASKED = "loss.mask_known=true"
MARGIN = ["loss.name=margin", "loss.margin=2"]
LOGISTIC = ["loss.name=logistic", "loss.margin=2"]
SELF_ADVERSARIAL = ["loss.name=self-adversarial", "loss.margin=2", "loss.temperature=0.5"]
CASES = {
    "softmax": ["regularizer.name=none"],
    "softmax n3 not reciprocal": [NOT_RECIPROCAL],
    "softmax smoothed masked": ["loss.label_smoothing=0.2", MASKED, "regularizer.name=l2"],
    "softmax in parts": ["training.micro_batch=4", NOT_RECIPROCAL, "regularizer.name=l2"],
    "softmax shared corrected masked": [*SHARED, "loss.correction=true", MASKED],
    "softmax shared drawn alone": [*SHARED, "loss.in_batch_negatives=false", NOT_RECIPROCAL],
    "softmax per query masked": [*PER_QUERY, MASKED, "training.micro_batch=5"],
    "margin masked": [*MARGIN, MASKED, NOT_RECIPROCAL],
    "margin shared in parts": [*MARGIN, *SHARED, "training.micro_batch=5"],
    "logistic in parts of one": [*LOGISTIC, "training.micro_batch=1"],
    "logistic per query": [*LOGISTIC, *PER_QUERY, NOT_RECIPROCAL],
    "self-adversarial masked": [*SELF_ADVERSARIAL, MASKED, "loss.subsampling=true"],
    "self-adversarial shared": [*SELF_ADVERSARIAL, *SHARED, MASKED, NOT_RECIPROCAL],
    "self-adversarial per query": [*SELF_ADVERSARIAL, *PER_QUERY, "loss.subsampling=true"],
    "dropout, class weights": [
        "model.entity_dropout=0.5", "model.relation_dropout=0.3", "loss.class_weights=true",
    ],
}  # fmt: skip
BILINEAR = {
    "dura": ["regularizer.name=dura"],
    "dura-w not reciprocal": ["regularizer.name=dura-w", NOT_RECIPROCAL],
}
IVR = ["regularizer.name=ivr", "regularizer.exponent=2.5", "regularizer.product_weight=2"]
RELATION = {
    "relation loss": ["loss.relation_weight=0.5"],
    "relation loss grouped": ["loss.relation_weight=0.5", "loss.grouped=true"],
    "relation loss not reciprocal in parts": [
        "loss.relation_weight=0.5", NOT_RECIPROCAL, "training.micro_batch=4", *PER_QUERY,
    ],
}  # fmt: skip


# Losses and negatives see only scores: one form per kernel has all cases, the others a few.
PER_KERNEL = ("complex", "transe", "rotate", "transe-bias", "tucker")
FEW = ("softmax", "softmax n3 not reciprocal", "dropout, class weights")


@pytest.mark.parametrize(
    "form, case",
    [(form, case) for form in FORMS for case in CASES if form in PER_KERNEL or case in FEW],
)
def test_gradients_are_those_of_the_formulas(form: str, case: str, graph: Graph) -> None:
    check_gradients(graph, *FORMS[form], *CASES[case])


GROUPED = ["loss.grouped=true"]
GROUPED_CASES = {
    "softmax": [],
    "not reciprocal in parts": [NOT_RECIPROCAL, "training.micro_batch=4"],
    "in blocks": ["loss.block=1", "loss.class_weights=true"],
    "subsampling": ["loss.subsampling=true", "regularizer.name=none"],
    "smoothed": ["loss.label_smoothing=0.2"],
    "smoothed in blocks": ["loss.label_smoothing=0.2", "loss.block=1", "training.micro_batch=4"],
}


def grouped_queries(trainer: Trainer) -> Queries:
    """All distinct queries with their answers in one batch."""
    generator = Generator(trainer.tables.device).manual_seed(1)
    (queries,) = trainer.batches(torch.tensor(TRIPLES), generator)[1]
    assert len(queries) < len(queries.answer) == 2 * len(TRIPLES)
    return queries


@pytest.mark.parametrize("case", GROUPED_CASES)
@pytest.mark.parametrize("form", PER_KERNEL)
def test_grouped_answers_have_the_softmax_loss_of_single_ones(
    form: str, case: str, graph: Graph
) -> None:
    check_gradients(graph, *FORMS[form], *GROUPED, *GROUPED_CASES[case])


WEIGHTED_CASES = {
    "softmax and N3": [],
    "not reciprocal, in parts": [NOT_RECIPROCAL, "training.micro_batch=4"],
    "DURA": ["regularizer.name=dura", "loss.class_weights=true"],
    "logistic in blocks": ["loss.name=logistic", "loss.block=1", "regularizer.name=none"],
    "relation loss": ["loss.relation_weight=0.5"],
    "distilled": ["loss.distillation=0.5"],
}


@pytest.mark.parametrize("case", WEIGHTED_CASES)
def test_weight_two_has_the_gradients_of_a_triple_written_twice(case: str, graph: Graph) -> None:
    weights = np.ones(len(TRIPLES), dtype=np.float32)
    weights[[1, 4]] = 2
    twice = np.concatenate([graph.train, graph.train[[1, 4]]])
    recipe = Recipe().with_settings(
        ["model.dim=3", "model.scale=0.8", "training.batch_size=22", *WEIGHTED_CASES[case]]
    )
    found = []
    for changed in (replace(graph, weights=weights), replace(graph, train=twice)):
        trainer = Trainer(recipe, changed, CPU)
        trainer.begin_epoch(State())
        triples = torch.from_numpy(changed.train)
        (queries,) = trainer.batches(triples, Generator().manual_seed(0))[1]
        value = trainer.gradients(queries, NegativeSample())
        found.append([value, *(table.grad for table in trainer.tables.parameters())])
    for of_weights, of_copies in zip(*found, strict=True):
        torch.testing.assert_close(of_weights, of_copies, rtol=1e-5, atol=1e-7)


def test_weights_and_grouped_queries_exclude_each_other(graph: Graph) -> None:
    weighted = replace(graph, weights=np.ones(len(TRIPLES), dtype=np.float32))
    with pytest.raises(RecipeError, match=r"loss\.grouped does not work with weights"):
        Trainer(Recipe().with_settings(GROUPED), weighted, CPU)


def test_a_query_with_several_answers_has_one_dropout_mask(graph: Graph) -> None:
    check_gradients(graph, *GROUPED, "model.entity_dropout=0.5", "model.relation_dropout=0.3")


@pytest.mark.parametrize("more", [[], ["training.micro_batch=3", "loss.block=1"]])
@pytest.mark.parametrize("form", ["complex", "tucker", "transe", "transe-2", "rote-bias"])
def test_grouped_logistic_is_the_binary_cross_entropy_of_all_entities(
    form: str, more: list[str], graph: Graph
) -> None:
    settings = ["model.dim=3", "model.scale=0.8", "regularizer.name=none", *LOGISTIC, *GROUPED]
    recipe = Recipe().with_settings([*FORMS[form], *settings, "training.batch_size=18", *more])
    trainer = Trainer(recipe, graph, CPU)
    queries = grouped_queries(trainer)
    value = trainer.gradients(queries, NegativeSample())
    naive = Naive(trainer, queries.single(), NegativeSample())
    losses = []
    for i in torch.searchsorted(queries.group, torch.arange(len(queries))).tolist():
        scores = naive.model.kernel(naive._query(i), naive.parameters["entities"])[0]
        labels = torch.zeros(N, dtype=torch.float64)
        labels[list(naive._known(i))] = 1.0
        shifted = scores + recipe.loss.margin
        losses.append(F.binary_cross_entropy_with_logits(shifted, labels, reduction="sum"))
    assert_exact(trainer, value, naive, torch.stack(losses).mean())


@pytest.mark.parametrize("name", [name for name, m in MODELS.items() if not m.is_distance])
def test_gradients_of_self_distillation_are_those_of_the_formula(name: str, graph: Graph) -> None:
    settings = [f"model.name={name}", "model.dim=3", "model.scale=0.8", "loss.distillation=0.5"]
    if MODELS[name].supports_relation_query():
        settings += ["loss.relation_weight=0.3", "loss.block=1"]
    recipe = Recipe().with_settings([*settings, "training.batch_size=18"])
    trainer, queries = Trainer(recipe, graph, CPU), both_sides()
    trainer.begin_epoch(State())
    value = trainer.gradients(queries, NegativeSample())
    naive = Naive(trainer, queries, NegativeSample())
    student = Naive(trainer, queries, NegativeSample())
    masks = {key: rows != 0 for key, rows in pruned(trainer.tables).named_parameters()}
    student.parameters = {key: rows * masks[key] for key, rows in naive.parameters.items()}
    truth = naive.value() + student.value()
    for i in range(len(queries)):
        p, q = (
            (each.model.kernel(each._query(i), each.parameters["entities"])[0] / 3).log_softmax(0)
            for each in (naive, student)
        )
        for own, other in ((p, q.detach()), (q, p.detach())):
            divergence = 3 * (own.exp() * (own - other)).sum() + (other.exp() * (other - own)).sum()
            truth = truth + 0.5 * divergence / len(queries)
    assert_exact(trainer, value, naive, truth)


def test_self_distillation_begins_after_its_epochs(graph: Graph) -> None:
    settings = ["loss.distillation=1", "loss.distillation_start=3", "model.dim=3"]
    trainer = Trainer(Recipe().with_settings(settings), graph, CPU)
    found = []
    for epoch in (2, 3):
        trainer.begin_epoch(State(epoch=epoch))
        found.append(trainer.distils)
    assert found == [False, True]


@pytest.mark.parametrize("case", BILINEAR)
@pytest.mark.parametrize("name", [name for name, m in MODELS.items() if not m.is_distance])
def test_gradients_of_dura_are_those_of_the_formula(name: str, case: str, graph: Graph) -> None:
    check_gradients(graph, f"model.name={name}", *BILINEAR[case])


@pytest.mark.parametrize("name", [name for name, m in MODELS.items() if m.has_relation_query()])
def test_gradients_of_ivr_are_those_of_the_formula(name: str, graph: Graph) -> None:
    check_gradients(graph, f"model.name={name}", *IVR, NOT_RECIPROCAL)


@pytest.mark.parametrize("case", RELATION)
@pytest.mark.parametrize("name", [n for n, m in MODELS.items() if m.supports_relation_query()])
def test_gradients_of_the_relation_loss_are_those_of_the_formula(
    name: str, case: str, graph: Graph
) -> None:
    check_gradients(graph, f"model.name={name}", *RELATION[case])


def test_both_sides_together_are_the_papers_softmax_loss(graph: Graph) -> None:
    settings = ["model.dim=3", "model.scale=0.8", NOT_RECIPROCAL, "regularizer.name=none"]
    trainer = Trainer(Recipe().with_settings(settings), graph, CPU)
    found = trainer.gradients(both_sides(), NegativeSample()).double() * 2 * len(TRIPLES)
    entities = torch.complex(*trainer.tables.entities.detach().double().chunk(2, dim=1))
    relations = torch.complex(*trainer.tables.relations.detach().double().chunk(2, dim=1))

    def phi(s: int, r: int, o: int) -> Tensor:
        return (entities[s] * relations[r] * entities[o].conj()).sum().real

    truth = torch.zeros((), dtype=torch.float64)
    for s, r, o in TRIPLES:
        over_o = sum(phi(s, r, other).exp() for other in range(N))
        over_s = sum(phi(other, r, o).exp() for other in range(N))
        truth -= (phi(s, r, o).exp() / over_o).log() + (phi(s, r, o).exp() / over_s).log()
    torch.testing.assert_close(found, truth, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("loss", [["loss.name=softmax"], MARGIN, LOGISTIC, SELF_ADVERSARIAL])
def test_a_query_without_negatives_has_a_finite_loss(loss: list[str], graph: Graph) -> None:
    # Two entities, both right answers: masking leaves no negative.
    train = torch.tensor([[0, 0, 0], [0, 0, 1]])
    names = Vocabulary(("a", "b"), ("r",))
    small = Graph("small", names, train.numpy(), train[:0].numpy(), train[:0].numpy())
    trainer = Trainer(Recipe().with_settings(["model.dim=2", *loss, MASKED]), small, CPU)
    assert trainer.gradients(Queries.of(train, "tail"), NegativeSample()).isfinite()
    assert trainer.tables.entities.grad is not None
    assert trainer.tables.entities.grad.isfinite().all()


def test_weights_follow_the_frequency_of_pairs_or_answers(graph: Graph) -> None:
    queries = both_sides()
    subsampled = Trainer(Recipe().with_settings(["loss.subsampling=true"]), graph, CPU)
    weight = subsampled.query_weights(queries)
    # (0, 0, 1): (0, 0, ?) occurs three times, (?, 0, 1) twice. (8, 2, 9): both once.
    assert (weight[0] / weight[14]).item() == pytest.approx((11 / 8) ** -0.5)
    assert weight.sum().item() == pytest.approx(1)
    # 0 and 2 occur three times, the others once or twice, 10 never.
    found = class_weights(graph)[[0, 2, 1, 4, 10]]
    torch.testing.assert_close(found, torch.tensor([1.0, 1.0, 0.7, 0.4, 0.1]))


@pytest.mark.parametrize("negatives", [SHARED, PER_QUERY])
def test_a_querys_own_bias_has_no_gradient_in_a_softmax(negatives: list[str], graph: Graph) -> None:
    settings = [*FORMS["transe-bias"], *negatives, "loss.n_negatives=2", "model.dim=4"]
    more = ["model.scale=0.5", "regularizer.name=none", "training.batch_size=2"]
    recipe = Recipe().with_settings([*settings, *more])
    trainer = Trainer(recipe, graph, CPU)
    queries = Queries.of(torch.tensor([[0, 0, 1], [4, 1, 5]]), "tail")
    sample = draw_sample(recipe, trainer.model, queries, N, Generator().manual_seed(0))
    drawn = sample.shared if sample.shared is not None else sample.per_query
    alone = [e for e in (0, 4) if e not in drawn.flatten().tolist()]
    assert alone
    trainer.gradients(queries, sample)
    gradient = trainer.tables.entities.grad
    assert gradient is not None
    assert gradient[alone, -1].tolist() == [0.0] * len(alone)
    assert gradient[alone, :-1].abs().min() > 0


@pytest.mark.parametrize("name", ["complex", "distmult", "simple"])
def test_bfloat16_products_give_gradients_close_to_those_of_float32(
    name: str, graph: Graph, bf16_operands: None
) -> None:
    found = []
    for precision in ("float32", "bf16"):
        settings = [f"model.name={name}", "model.dim=16", "model.scale=0.5"]
        recipe = Recipe().with_settings([*settings, f"hardware.precision={precision}"])
        trainer = Trainer(recipe, graph, CPU)
        value = trainer.gradients(both_sides(), NegativeSample())
        gradient = trainer.tables.entities.grad
        assert gradient is not None
        assert gradient.dtype == torch.float32
        found.append((value, gradient))
    (value, gradient), (rounded_value, rounded) = found
    assert rounded_value.item() == pytest.approx(value.item(), rel=0.01)
    assert 0 < (rounded - gradient).norm() < 0.05 * gradient.norm()


@pytest.mark.parametrize("side, row", [("tail", 1), ("head", 4)])
def test_a_reciprocal_query_changes_only_its_own_relation_row(
    side: str, row: int, graph: Graph
) -> None:
    trainer = Trainer(Recipe().with_settings(["model.dim=4"]), graph, CPU)
    queries = Queries.of(torch.tensor(TRIPLES[3:5]), SIDES[SIDES.index(side)])
    trainer.gradients(queries, NegativeSample())
    assert trainer.tables.relations.grad is not None
    assert trainer.tables.relations.grad.any(1).nonzero().flatten().tolist() == [row]


def test_a_batch_whose_loss_is_not_finite_changes_nothing_on_a_cpu(graph: Graph) -> None:
    trainer = Trainer(Recipe().with_settings(["model.dim=4"]), graph, CPU)
    with torch.no_grad():
        trainer.tables.entities[0, 0] = torch.nan
    before = {name: rows.clone() for name, rows in trainer.tables.weights().items()}
    assert not trainer.step(both_sides(), Generator()).isfinite()
    after = trainer.tables.weights()
    assert all(torch.equal(before[n].nan_to_num(7), after[n].nan_to_num(7)) for n in before)


@pytest.mark.parametrize(
    "settings, needed",
    [
        ([], False),
        (["loss.negatives=per_query", "loss.n_negatives=3"], False),
        (["loss.mask_known=true"], True),
        (["loss.subsampling=true"], True),
        (["loss.mask_known=true", "loss.negatives=shared", "loss.n_negatives=3"], True),
    ],
)
def test_the_answers_of_train_are_sorted_only_for_a_loss_that_needs_them(
    settings: list[str], needed: bool, quick: Callable[..., Recipe], tiny_graph: Graph
) -> None:
    trainer = Trainer(quick(*settings), tiny_graph, CPU)
    assert (trainer.known is not None) is needed
    queries = Queries.of(torch.from_numpy(tiny_graph.train), "tail")
    assert trainer.step(queries, Generator()).isfinite()


@pytest.mark.parametrize("device", [CPU, pytest.param(CUDA, marks=pytest.mark.gpu)])
def test_the_memory_of_a_trainer_is_freed_at_once(
    device: torch.device, quick: Callable[..., Recipe], tiny_graph: Graph
) -> None:
    # A garbage collector would come late: it does not know how much GPU memory an object holds.
    queries = Queries.of(torch.from_numpy(tiny_graph.train).to(device), "tail")
    trainer = Trainer(quick(f"training.batch_size={len(queries)}"), tiny_graph, device)
    generator = Generator(device)
    for _ in range(6):  # on a GPU, some of them captured
        trainer.step(queries, generator)
    held = [weakref.ref(x) for x in (trainer.tables, trainer.tables.entities.grad)]
    gc.disable()
    try:
        del trainer
        assert [reference() for reference in held] == [None, None]
    finally:
        gc.enable()


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize(
    "form, more",
    [
        *((form, GROUPED) for form in ("complex", "quate", "transe", "rotate", "rote-bias")),
        *((form, [*GROUPED, *LOGISTIC]) for form in ("complex", "transe")),
        *((form, ["loss.distillation=1"]) for form in ("complex", "tucker")),
    ],
)
def test_grouped_and_distilled_steps_on_a_gpu_are_those_of_a_cpu(
    form: str, more: list[str], precision: str, graph: Graph
) -> None:
    settings = ["model.dim=3", "model.scale=0.8", "training.batch_size=18", *more]
    precise = [f"hardware.precision={precision}"]
    recipe = Recipe().with_settings([*FORMS[form], *settings, *precise])
    near, far = trainers = [Trainer(recipe, graph, device) for device in (CPU, CUDA)]
    values = []
    for trainer in trainers:
        trainer.begin_epoch(State())
        generator = Generator(trainer.tables.device)
        triples = torch.tensor(TRIPLES, device=generator.device)
        (queries,) = trainer.batches(triples, generator)[1]
        values.append(float(trainer.gradients(queries, NegativeSample())))
    assert values[1] == pytest.approx(values[0], rel=1e-2 if precision == "bf16" else 1e-4)
    tolerance = 2e-2 if precision == "bf16" else 1e-4
    for name, true in near.tables.named_parameters():
        found = dict(far.tables.named_parameters())[name].grad[: len(true)].cpu()
        torch.testing.assert_close(found, true.grad, rtol=tolerance, atol=tolerance / 10)


@pytest.mark.gpu
def test_the_bfloat16_copy_follows_captured_steps_and_a_load(
    quick: Callable[..., Recipe], tiny_graph: Graph
) -> None:
    trainer = Trainer(quick(BF16, "hardware.device=cuda"), tiny_graph, CUDA)
    queries = Queries.of(torch.from_numpy(tiny_graph.train[:8]).cuda(), "tail")
    first = {name: rows.clone() for name, rows in trainer.tables.weights().items()}
    for _ in range(6):  # the first ones plainly, the others as a CUDA graph
        trainer.step(queries, Generator(CUDA))
    tables = trainer.tables
    assert tables.bf16_copy is not None
    assert tables.bf16_copy.equal(tables.entities.bfloat16())
    values = []
    for _ in range(2):
        tables.load(first)
        values.append(trainer.step(queries, Generator(CUDA)).item())
        assert tables.bf16_copy.equal(tables.entities.bfloat16())
    # Both begin from the same rows, whatever the copy was before.
    assert values[0] == pytest.approx(values[1], rel=1e-5)
