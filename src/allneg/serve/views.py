"""What the page shows: reasons for an answer, multi-hop questions, one entity, and quality.

Reasons are similar entities with the same answer, and facts and paths in train. An entity's page
has its facts, similar entities, and a small graph with predicted facts.
"""

import math
import time
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import islice, zip_longest

import numpy as np

from allneg.errors import RunError
from allneg.evaluation import PROTOCOLS, evaluate, evaluate_baselines
from allneg.evaluation.ranks import Ranking, rank
from allneg.graph.graph import SPLITS, Graph, Vocabulary, even_sample
from allneg.graph.queries import SIDES, Side
from allneg.predict.lookup import Facts
from allneg.runs import Run
from allneg.serve import schemas
from allneg.serve.loaded_run import LoadedRun, errors_named, query_for

_MAX_REASONS = 8  # entities, and kinds of paths
_MAX_COMPARED = 20_000  # entities with the same answer
_MAX_PATHS = 20_000  # that are counted
_MAX_OTHERS = 20  # shown per relation
_MAX_NEIGHBOURS = 10
_MAX_NODES, _MAX_KNOWN, _MAX_EDGES = 24, 15, 60
_MAX_QUERIES = 8  # for predicted facts
_MIN_PROBABILITY = 0.5  # of a predicted fact
_MAX_WORST = 50
_MAX_EXAMPLES = 6
_N_SCORES_WORST = 1 << 25  # computed in the search for the worst queries
_N_SCORES_EXAMPLES = 1 << 22

Step = tuple[int, bool]  # a relation, and whether it is followed from tail to head
Group = tuple[str, schemas.Direction]  # relation, direction
Others = list[tuple[str, str]]  # name, split
Triple = tuple[str, str, str]


def explain(run: LoadedRun, triple: Triple, side: Side) -> schemas.Explanation:
    """What in train supports a triple as the answer on `side` of a query."""
    head, tail = run.entity_id(triple[0]), run.entity_id(triple[2])
    relation = run.relation_id(triple[1])
    names, facts = run.vocabulary, run.facts
    between = [
        [*_named(names, *fact), split]
        for *fact, split in facts.between(head, tail)
        if fact != [head, relation, tail]
    ]
    entity, answer = (head, tail) if side == "tail" else (tail, head)
    around = facts.of_entity(answer)
    same = (around.relation == relation) & (around.split == 0) & (around.other != entity)
    holders = np.unique(around.other[same & (around.reverse == (side == "tail"))])
    others = holders[:_MAX_COMPARED].tolist()
    similarities = run.vectors.similarities(entity, others)
    ranked = sorted(zip(similarities, others, strict=True), reverse=True)
    supporters = []
    for similarity, other in ranked[:_MAX_REASONS]:
        fact = (other, relation, tail) if side == "tail" else (head, relation, other)
        supporter = schemas.Supporter(names.entities[other], similarity, _named(names, *fact))
        supporters.append(supporter)
    return schemas.Explanation(supporters, between, _paths(names, facts, head, tail))


def _paths(names: Vocabulary, facts: Facts, head: int, tail: int) -> list[schemas.Path]:
    """Paths of two facts in train from head to tail, grouped by their relations."""
    first, last = _steps(facts, head, tail), _steps(facts, tail, head)
    count: Counter[tuple[Step, Step]] = Counter()
    example: dict[tuple[Step, Step], int] = {}
    for middle in sorted(first.keys() & last.keys()):
        for step in first[middle]:
            for relation, reverse in last[middle]:
                # `last` starts at the tail: its steps are followed in the other direction.
                kind = (step, (relation, not reverse))
                count[kind] += 1
                example.setdefault(kind, middle)
        if count.total() > _MAX_PATHS:
            break
    paths = []
    for kind, number in sorted(count.items(), key=lambda item: (-item[1], item[0]))[:_MAX_REASONS]:
        relations = ["^" * reverse + names.relations[relation] for relation, reverse in kind]
        ends = ((head, example[kind]), (example[kind], tail))
        steps = [
            (end, relation, start) if reverse else (start, relation, end)
            for (relation, reverse), (start, end) in zip(kind, ends, strict=True)
        ]
        paths.append(schemas.Path(relations, number, [_named(names, *step) for step in steps]))
    return paths


def _steps(facts: Facts, start: int, end: int) -> dict[int, list[Step]]:
    """The steps in train from an entity to every other one, except `end` and itself."""
    around = facts.of_entity(start)
    steps: dict[int, list[Step]] = {}
    mask = (around.split == 0) & (around.other != start) & (around.other != end)
    for relation, other, _, reverse in around.rows(mask):
        steps.setdefault(other, []).append((relation, reverse))
    return steps


def _named(names: Vocabulary, head: int, relation: int, tail: int) -> schemas.Fact:
    return [names.entities[head], names.relations[relation], names.entities[tail]]


def ask(run: LoadedRun, question: str, k: int, facts: bool) -> schemas.Asked:
    """The best answers to a multi-hop question; with `facts`, known facts are certain."""
    began = time.perf_counter()
    answers = run.predictor.ask(question, k, facts)
    steps = [step for answer in answers for step in answer.steps]
    labels = run.labels_of(name for step in steps for name in (step.head, step.tail))
    return schemas.Asked(answers, labels, time.perf_counter() - began)


def entity_page(run: LoadedRun, name: str) -> schemas.EntityPage:
    entity = run.entity_id(name)
    groups = _groups(run, entity)
    facts = [_part(run, *item, slice(_MAX_OTHERS)) for item in groups.items()]
    neighbours, graph = run.neighbours(name, _MAX_NEIGHBOURS), _drawing(run, name, groups)
    return schemas.EntityPage(*run.about(entity), facts, neighbours, graph)


def fact_group(run: LoadedRun, name: str, group: Group, start: int, k: int) -> schemas.FactGroup:
    """`k` facts of an entity with a relation in a direction, in the order of its page."""
    entity, _ = run.entity_id(name), run.relation_id(group[0])
    return _part(run, group, _groups(run, entity).get(group, []), slice(start, start + k))


def _part(run: LoadedRun, group: Group, others: Others, part: slice) -> schemas.FactGroup:
    shown = [schemas.OtherEntity(o, run.labels.get(o), split) for o, split in others[part]]
    return schemas.FactGroup(*group, len(others), shown)


def _groups(run: LoadedRun, entity: int) -> dict[Group, Others]:
    """Other entities by relation and direction; large groups and entities of many facts first."""
    facts, names = run.facts.of_entity(entity), run.vocabulary
    groups: dict[tuple[int, bool], Others] = {}
    order = np.argsort(-run.facts.degree[facts.other], kind="stable")
    for relation, other, split, reverse in facts.rows(order):
        groups.setdefault((relation, reverse), []).append((names.entities[other], SPLITS[split]))
    ranked = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    return {
        (names.relations[relation], "in" if reverse else "out"): others
        for (relation, reverse), others in ranked
    }


def _triple(name: str, relation: str, other: str, outward: bool) -> Triple:
    return (name, relation, other) if outward else (other, relation, name)


def _drawing(run: LoadedRun, name: str, groups: dict[Group, Others]) -> schemas.Drawing:
    nodes: dict[str, None] = {name: None}
    edges: dict[Triple, bool] = {}  # whether it is predicted
    # The first fact of every group, then the second of every group, and so on.
    for group_row in islice(zip_longest(*groups.values()), _MAX_EDGES):
        for (relation, direction), item in zip(groups, group_row, strict=True):
            if item is None or len(edges) == _MAX_EDGES:
                continue
            if item[0] in nodes or len(nodes) <= _MAX_KNOWN:
                nodes[item[0]] = None
                edges[_triple(name, relation, item[0], direction == "out")] = False
    for triple in _predicted_facts(run, name, groups):
        other = triple[2] if triple[0] == name else triple[0]
        if other in nodes or len(nodes) < _MAX_NODES:
            nodes[other] = None
            edges[triple] = True
    return schemas.Drawing(
        [schemas.Entity(node, run.labels.get(node)) for node in nodes],
        [schemas.Edge(*triple, predicted) for triple, predicted in edges.items()],
    )


def _predicted_facts(run: LoadedRun, name: str, groups: dict[Group, Others]) -> list[Triple]:
    """Likely new facts with relations that the entity already has, most likely first."""
    queries: list[tuple[Side, str, str]] = [
        ("tail" if direction == "out" else "head", name, relation)
        for relation, direction in islice(groups, _MAX_QUERIES)
    ]
    found = []
    answers = run.predictor.answers(queries, k=3, new=True)
    for (side, _, relation), answer in zip(queries, answers, strict=True):
        for prediction in answer.predictions:
            rate = prediction.calibrated
            probability = prediction.share if rate is None else rate
            if probability >= _MIN_PROBABILITY and prediction.entity != name:
                triple = _triple(name, relation, prediction.entity, side == "tail")
                found.append((probability, triple))
    return [triple for _, triple in sorted(found, key=lambda item: -item[0])]


@cache
def quality(run: LoadedRun) -> schemas.Quality:
    """The report, the curves and the worst queries. An unfinished run is evaluated first."""
    split, found = _ranked_split(run.graph), run.report
    if found is None and split is not None:
        block, predictor = run.run.recipe.evaluation.block, run.predictor
        found = evaluate(predictor.model, predictor.tables, run.graph, split, block=block)
    if found is not None and not found.baselines:
        baselines = evaluate_baselines(run.graph, found.protocol["split"])
        found = replace(found, baselines=baselines)
    report = found.to_json() if found is not None else None
    worst, n_ranked = [], 0
    if split is not None:
        ranking = _rank_sample(run, split, _N_SCORES_WORST)
        worst, n_ranked = _worst(ranking, run.vocabulary), len(ranking.triples)
    by_relation = [
        schemas.RelationMetrics(name, values["category"], values["head"], values["tail"])
        for name, values in (report["by_relation"] if report else {}).items()
    ]
    return schemas.Quality(report, curves(run.run), by_relation, worst, n_ranked)


def curves(run: Run) -> list[schemas.Curve]:
    """The loss and the validation MRR of every epoch so far; none once the run is deleted."""
    found = []
    try:
        metrics = run.metrics()
    except RunError:
        return []
    for entry in metrics:
        loss, valid = entry.get("loss"), entry.get("valid") or {}
        is_number = isinstance(loss, int | float) and math.isfinite(loss)
        found.append(schemas.Curve(entry["epoch"], loss if is_number else None, valid.get("mrr")))
    return found


def examples(run: LoadedRun) -> list[schemas.Query]:
    """Queries that the model answers well, with different relations if possible.

    Among equal ranks, entities with many facts come first: people know them.
    """
    with errors_named(run.run.folder):
        ranking = _rank_sample(run, _ranked_split(run.graph) or "train", _N_SCORES_EXAMPLES)
    triples, ranks = ranking.triples, ranking.ranks
    # Take the side with the better rank; of equal ones the tail, which reads more naturally.
    asks_tail = ranks[:, 0] <= ranks[:, 1]
    entity = np.where(asks_tail, triples[:, 0], triples[:, 2])
    order = np.lexsort((-run.facts.degree[entity], ranks.min(1)))
    used: Counter[int] = Counter()  # queries of each relation so far
    rounds = []
    for i in order.tolist():
        used[triples[i, 1]] += 1
        rounds.append((used[triples[i, 1]], i))
    found: dict[schemas.Query, None] = {}
    for _, i in sorted(rounds, key=lambda item: item[0]):
        name, relation = run.name(entity[i]), run.vocabulary.relations[triples[i, 1]]
        found[query_for("tail" if asks_tail[i] else "head", name, relation)] = None
        if len(found) == _MAX_EXAMPLES:
            break
    return list(found)


def _ranked_split(graph: Graph) -> str | None:
    return next((split for split in ("test", "valid") if len(graph.split(split))), None)


def _rank_sample(run: LoadedRun, split: str, n_scores: int) -> Ranking:
    """Rank an even sample of a split."""
    graph, predictor = run.graph, run.predictor
    triples = graph.split(split)
    sample = even_sample(len(triples), max(1, n_scores // graph.n_entities // 2))
    # The other triples move to another split, so that the filter still contains them.
    home = next(name for name in SPLITS if name != split)
    rest = np.concatenate([graph.split(home), np.delete(triples, sample, axis=0)])
    sampled = replace(graph, **{split: triples[sample], home: rest})  # type: ignore[arg-type]
    block = min(n_scores, 1 << 22)
    return rank(predictor.model, predictor.tables, sampled, split, PROTOCOLS["allneg"], block)


def _worst(ranking: Ranking, names: Vocabulary) -> list[schemas.RankedQuery]:
    found = []
    for i in np.argsort(-ranking.ranks, axis=None, kind="stable")[:_MAX_WORST].tolist():
        row, side = divmod(i, len(SIDES))
        head, relation, tail = _named(names, *ranking.triples[row].tolist())
        number = float(ranking.ranks[row, side])
        found.append(schemas.RankedQuery(head, relation, tail, SIDES[side], number))
    return found
