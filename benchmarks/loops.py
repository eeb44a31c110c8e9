"""An epoch of ComplEx-N3 and a ranking of test, done by this library and by others.

kbc's loop (Lacroix et al., 2018) is written anew here from its description: reciprocal relations,
one cross-entropy over all entities, N3 on the batch's factors, AdaGrad; the batch is cut on the
CPU, the loss is read after every step; ranking filters query by query.
"""

from __future__ import annotations

import argparse
import gc
import math
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from itertools import islice

import numpy as np
import torch
from measure import benchmark_parser, machine, write_whole
from torch import Generator, Tensor, nn

from allneg.evaluation import evaluate
from allneg.graph import Graph, read_graph
from allneg.graph.graph import Vocabulary
from allneg.hardware import prepare
from allneg.kernels.dot import has_fast_bf16
from allneg.recipe import Hardware, Model, Optimizer, Recipe, Regularizer, Training
from allneg.runs.checkpoint import State
from allneg.training.trainer import Trainer

GROUPED = " grouped"  # each distinct query once, with all of its answers


@dataclass(frozen=True)
class Task:
    """What every loop does: ComplEx of `dim` complex coordinates against all entities."""

    graph: Graph
    dim: int
    batch: int
    device: torch.device
    weight: float = 0.05  # of N3
    rate: float = 0.1

    @property
    def queries(self) -> int:
        return 2 * len(self.graph.train)


class Loop(ABC):
    """A way to do the task."""

    @abstractmethod
    def steps(self, count: int) -> int:
        """Take so many steps, or an epoch where that is less; how many queries were learnt."""

    @abstractmethod
    def rank(self) -> float:
        """Filtered MRR of test from both sides."""


class Ours(Loop):
    def __init__(self, task: Task, precision: str, settings: Iterable[str] = ()) -> None:
        hardware = replace(Hardware(), device=str(task.device), precision=precision)
        recipe = Recipe(
            model=Model(dim=task.dim),
            regularizer=Regularizer("n3", task.weight),
            optimizer=Optimizer(learning_rate=task.rate),
            training=Training(batch_size=task.batch),
            hardware=hardware,
        ).with_settings(settings)
        self.task, self.device = task, prepare(hardware)
        self.trainer = Trainer(recipe, task.graph, self.device)
        self.trainer.set_rate(State())
        self.train = torch.from_numpy(task.graph.train).to(self.device)
        self.generator, self.epochs = Generator(self.device), 0

    def steps(self, count: int) -> int:
        total, done = torch.zeros(2, device=self.device, dtype=torch.float64)
        order = Generator(self.device).manual_seed(self.epochs)
        self.epochs += 1
        for queries in islice(self.trainer.batches(self.train, order)[1], count):
            total += self.trainer.step(queries, self.generator)
            done += len(queries) if queries.weight is None else queries.weight.sum()
        assert math.isfinite(total)
        return int(done)

    def rank(self) -> float:
        return evaluate(self.trainer.model, self.trainer.tables, self.task.graph, "test").mrr


class KbcLoop(Loop):
    def __init__(self, task: Task) -> None:
        torch.backends.cuda.matmul.allow_tf32 = False  # as it ships
        self.task, graph = task, task.graph
        width = 2 * task.dim
        self.entities = nn.Embedding(graph.n_entities, width, device=task.device)
        self.relations = nn.Embedding(2 * graph.n_relations, width, device=task.device)
        for table in (self.entities, self.relations):
            nn.init.normal_(table.weight, std=1e-3)
        parameters = [self.entities.weight, self.relations.weight]
        self.optimizer = torch.optim.Adagrad(parameters, lr=task.rate)
        self.examples = torch.from_numpy(self._doubled(graph.train))
        self.known: dict[tuple[int, int], list[int]] | None = None

    def steps(self, count: int) -> int:
        order = torch.randperm(len(self.examples))
        examples, done, loss = self.examples[order], 0, nn.CrossEntropyLoss()
        for batch in islice(examples.split(self.task.batch), count):
            head, relation, tail = batch.to(self.task.device).T
            h, r, t = self.entities(head), self.relations(relation), self.entities(tail)
            value = loss(self._query(h, r) @ self.entities.weight.T, tail)
            for factor in (h, r, t):
                re, im = factor.chunk(2, 1)
                cube = torch.sqrt(re**2 + im**2 + 1e-14) ** 3
                value = value + self.task.weight * cube.sum() / len(batch)
            self.optimizer.zero_grad()
            value.backward()
            self.optimizer.step()
            value.item()  # for its progress bar
            done += len(batch)
        return done

    @torch.no_grad()
    def rank(self, part: str = "test", size: int = 500) -> float:
        graph = self.task.graph
        if self.known is None:
            self.known = defaultdict(list)
            for split in (graph.train, graph.valid, graph.test):
                for head, relation, tail in self._doubled(split).tolist():
                    self.known[head, relation].append(tail)
        ranks = []
        for batch in torch.from_numpy(self._doubled(getattr(graph, part))).split(size):
            head, relation, tail = batch.to(self.task.device).T
            query = self._query(self.entities(head), self.relations(relation))
            scores = query @ self.entities.weight.T
            target = scores.gather(1, tail.unsqueeze(1))
            for i, (its_head, its_relation, its_tail) in enumerate(batch.tolist()):
                out = self.known[its_head, its_relation] + [its_tail]
                scores[i, torch.tensor(out, device=scores.device)] = -1e6
            ranks.append(1 + (scores >= target).sum(1))
        return (1.0 / torch.cat(ranks)).mean().item()

    def _doubled(self, triples: np.ndarray) -> np.ndarray:
        head, relation, tail = triples.T
        turned = np.stack([tail, relation + self.task.graph.n_relations, head], 1)
        return np.concatenate([triples, turned])

    def _query(self, head: Tensor, relation: Tensor) -> Tensor:
        (h_re, h_im), (r_re, r_im) = head.chunk(2, 1), relation.chunk(2, 1)
        return torch.cat([h_re * r_re - h_im * r_im, h_re * r_im + h_im * r_re], 1)


class PyKeen(Loop):
    """PyKEEN's ComplEx in its loop against all entities, which groups queries by their pair."""

    def __init__(self, task: Task) -> None:
        from pykeen.losses import CrossEntropyLoss
        from pykeen.models import ComplEx
        from pykeen.training import LCWATrainingLoop
        from pykeen.triples import CoreTriplesFactory

        graph = task.graph
        triples = CoreTriplesFactory(
            torch.from_numpy(graph.train),
            graph.n_entities,
            graph.n_relations,
            create_inverse_triples=True,
        )
        self.task = task
        self.model = ComplEx(
            triples_factory=triples,
            embedding_dim=task.dim,
            loss=CrossEntropyLoss(),
            random_seed=0,
        ).to(task.device)
        optimizer = torch.optim.Adagrad(self.model.parameters(), lr=task.rate)
        self.loop = LCWATrainingLoop(model=self.model, triples_factory=triples, optimizer=optimizer)
        self.triples = triples
        pairs = len(np.unique(graph.train[:, :2], axis=0)) + len(
            np.unique(graph.train[:, 1:], axis=0)
        )
        self.pairs, self.epochs = pairs, 0  # grouped queries of an epoch, and epochs taken

    def steps(self, count: int) -> int:
        # Its number of epochs counts from the first ever taken: once more of one would be none.
        losses = self.loop.train(
            triples_factory=self.triples, num_epochs=self.epochs + 1, batch_size=self.task.batch,
            continue_training=self.epochs > 0, use_tqdm=False, use_tqdm_batch=False,
        )  # fmt: skip
        self.epochs += 1
        assert losses is not None
        assert len(losses) == self.epochs
        return self.pairs

    def rank(self) -> float:
        from pykeen.evaluation import RankBasedEvaluator

        graph = self.task.graph
        result = RankBasedEvaluator(filtered=True).evaluate(
            self.model,
            torch.from_numpy(graph.test),
            batch_size=256,
            additional_filter_triples=[
                torch.from_numpy(graph.train),
                torch.from_numpy(graph.valid),
            ],
            use_tqdm=False,
        )
        return float(result.get_metric("both.realistic.inverse_harmonic_mean_rank"))


def loops(task: Task) -> dict[str, Callable[[], Loop]]:
    """Every way that can run here."""
    is_cpu = task.device.type == "cpu"
    precisions = cpu_precisions() if is_cpu else ("tf32", "bf16", "float32")
    ways: dict[str, Callable[[], Loop]] = {
        f"allneg {precision}": partial(Ours, task, precision) for precision in precisions
    }
    for precision in precisions if is_cpu else ():
        settings = ["loss.grouped=true"]
        ways[f"allneg {precision}{GROUPED}"] = partial(Ours, task, precision, settings)
    ways["kbc's loop"] = partial(KbcLoop, task)
    if find_spec("pykeen") is not None:
        ways["PyKEEN"] = partial(PyKeen, task)
    return ways


def cpu_precisions() -> tuple[str, ...]:
    return ("float32", "bf16") if has_fast_bf16() else ("float32",)


def made_up(entities: int, relations: int, triples: int) -> Graph:
    """A graph of a given size, its entities drawn by a power law; a few triples are for test."""
    rng = np.random.default_rng(0)
    weight = 1.0 / np.arange(1, entities + 1) ** 0.8
    ends = rng.choice(entities, (2, triples), p=weight / weight.sum())
    all_triples = np.stack([ends[0], rng.integers(relations, size=triples), ends[1]], 1)
    names = Vocabulary(
        tuple(f"e{i}" for i in range(entities)), tuple(f"r{i}" for i in range(relations))
    )
    held = min(5000, triples // 10)
    none = all_triples[:0]
    return Graph("made up", names, all_triples[held:], none, all_triples[:held])


def options(description: str) -> argparse.ArgumentParser:
    """What bench_epoch and bench_ranking are told."""
    parser = benchmark_parser(description)
    parser.add_argument("--data", default="fb15k-237", help="a set's name")
    parser.add_argument("--made-up", help="instead, ENTITIES,RELATIONS,TRIPLES")
    parser.add_argument("--dim", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--ways", help="only these, with commas between")
    parser.add_argument("--steps", type=int, default=10**9, help="at most so many an epoch")
    return parser


def asked(args: argparse.Namespace) -> tuple[Task, dict[str, Callable[[], Loop]]]:
    """The task, and the ways to do it."""
    sizes = args.made_up and [int(each) for each in args.made_up.split(",")]
    graph = made_up(*sizes) if sizes else read_graph(args.data)
    task = Task(graph, args.dim, args.batch, torch.device(args.device))
    ways = loops(task)
    names = args.ways.split(",") if args.ways else list(ways)
    return task, {name: ways[name] for name in names}


def compare(
    args: argparse.Namespace,
    what: dict[str, str],
    measure: Callable[[Loop, Task], dict[str, float]],
    without: Collection[str] = (),
) -> None:
    """Measure every way; print it, and write JSON where `--out` says.

    The others come first: settings of this library for the whole process would change their time.
    """
    task, ways = asked(args)
    rows: list[dict[str, str | float]] = []
    for name, make in reversed(
        [way for way in ways.items() if not any(word in way[0] for word in without)]
    ):
        rows.insert(0, {"way": name, **measure(make(), task)})
        print(*rows[0].items(), flush=True)
        gc.collect()  # the tables of this way, before those of the next
        if args.out:  # after each, so that what is done is kept
            write_whole(args.out, {**what, **facts(task), "rows": rows})


def facts(task: Task) -> dict[str, str | int]:
    """What a number depends on."""
    graph = task.graph
    return {
        **machine(task.device),
        "data": graph.name,
        "entities": graph.n_entities,
        "relations": graph.n_relations,
        "questions": task.queries,
        "dim": task.dim,
        "batch": task.batch,
    }


def seconds_of(work: Callable[[], object], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    began = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - began


def product_rate(device: torch.device, precision: str, n: int) -> float:
    """Operations a second of an n × n product."""
    prepare(Hardware(device=str(device), precision=precision))  # type: ignore[arg-type]
    narrow = torch.bfloat16 if precision == "bf16" else torch.float32
    a, b = torch.randn(2, n, n, device=device, dtype=narrow).unbind()
    turns = 20 if device.type == "cuda" else 2

    def products() -> None:
        for _ in range(turns):
            a @ b

    products()
    return 2.0 * n**3 * turns / seconds_of(products, device)
