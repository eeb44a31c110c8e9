"""Running out of memory and failing devices, in training and in evaluation."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from allneg.cli import allneg
from allneg.errors import ResourceError
from allneg.evaluation import PROTOCOLS
from allneg.evaluation.ranks import rank
from allneg.graph import Graph
from allneg.hardware import is_out_of_memory
from allneg.kernels.distances import Distance
from allneg.models import MODELS
from allneg.runs import Run
from allneg.scoring import Shard, Tables
from allneg.training import fit
from allneg.training.trainer import Trainer

Made = Callable[..., Run]
TOO_MUCH = 1 << 50  # bytes


def out_of_memory(*_: object, **__: object) -> Tensor:
    """The real error of a CPU."""
    return torch.empty(TOO_MUCH, dtype=torch.uint8)


@pytest.mark.battery(31)
def test_out_of_memory_errors_are_recognised() -> None:
    with pytest.raises(RuntimeError) as caught:
        out_of_memory()
    assert is_out_of_memory(caught.value)
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 62)  # more bytes than 64 bits count
    assert is_out_of_memory(caught.value)
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory."))
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(RuntimeError("size mismatch"))


@pytest.mark.battery(31)
@pytest.mark.parametrize("most", [1, 2, 5, 100])
@pytest.mark.parametrize("protocol", ["allneg", "pykeen"])
def test_ranking_with_less_memory_gives_equal_ranks(
    tiny_graph: Graph, most: int, protocol: str
) -> None:
    class CrampedDistance(Distance):
        """Has memory for `most` queries at once."""

        def scores(self, query: Tensor, rows: Tensor) -> Tensor:
            sizes.append(len(query))
            return out_of_memory() if len(query) > most else super().scores(query, rows)

    class Cramped(MODELS["transe"]):  # type: ignore[misc]
        kernel = CrampedDistance("l1", parts=1)

    sizes: list[int] = []
    roomy, cramped = (kind(4, 1.0) for kind in (MODELS["transe"], Cramped))
    n = tiny_graph.n_entities
    tables = Tables.create(roomy, tiny_graph.n_relations, Shard.whole(n), True, seed=0)
    wanted = rank(roomy, tables, tiny_graph, "train", PROTOCOLS[protocol], 1 << 20)
    found = rank(cramped, tables, tiny_graph, "train", PROTOCOLS[protocol], 1 << 20)
    assert found.ranks.tolist() == wanted.ranks.tolist()
    assert len(wanted.triples) == 20
    # It halves the size and does not start again: no distinct query is ranked twice.
    assert sum(size for size in sizes if size <= most) == tiny_graph.n_distinct_queries
    assert sum(size > most for size in sizes) == {1: 4, 2: 3, 5: 2, 100: 0}[most]


def rank_with(scores: Callable[..., Tensor], graph: Graph) -> None:
    """Rank test by a model whose kernel has other scores."""

    class Kernel(Distance):
        def scores(self, query: Tensor, rows: Tensor) -> Tensor:
            return scores()

    class Transe(MODELS["transe"]):  # type: ignore[misc]
        kernel = Kernel("l1", parts=1)

    model, whole = Transe(4, 1.0), Shard.whole(graph.n_entities)
    tables = Tables.create(model, graph.n_relations, whole, True, seed=0)
    rank(model, tables, graph, "test", PROTOCOLS["allneg"], 1 << 20)


@pytest.mark.battery(31)
def test_too_little_memory_for_one_query_is_an_error(tiny_graph: Graph) -> None:
    with pytest.raises(ResourceError, match="one query at a time") as caught:
        rank_with(out_of_memory, tiny_graph)
    assert caught.value.exit_code == 6


@pytest.mark.battery(31)
@pytest.mark.parametrize("command", ["evaluate", "compare", "predict"])
def test_weights_that_do_not_fit_on_a_device_are_an_error(
    made: Made, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    run = made()
    fit(run)
    monkeypatch.setattr(Tables, "to", out_of_memory)
    arguments = {
        "evaluate": [run.folder],
        "compare": [run.folder, run.folder],
        "predict": [run.folder, "--head", "France", "--relation", "borders"],
    }
    with pytest.raises(ResourceError, match="use --device cpu"):
        allneg.main([command, *map(str, arguments[command])], standalone_mode=False)


@pytest.mark.battery(31)
def test_other_errors_during_ranking_are_raised(tiny_graph: Graph) -> None:
    def bug() -> Tensor:
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        rank_with(bug, tiny_graph)


def failing(monkeypatch: pytest.MonkeyPatch, step: int, failure: Callable[[], object]) -> None:
    """Let training step number `step` fail."""
    real, done = Trainer.step, 0

    def broken(self: Trainer, *arguments: object) -> object:
        nonlocal done
        done += 1
        return failure() if done == step else real(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Trainer, "step", broken)


@pytest.mark.battery(31)
@pytest.mark.parametrize(
    "setting, advice",
    [
        ("training.batch_size=8", "Lower training.micro_batch to 4"),
        ("training.micro_batch=3", "Lower training.micro_batch to 1"),
        ("training.micro_batch=1", "Lower loss.block or model.dim"),
    ],
)
def test_training_out_of_memory_names_the_setting_to_lower(
    made: Made, monkeypatch: pytest.MonkeyPatch, setting: str, advice: str
) -> None:
    run = made(setting)
    failing(monkeypatch, 3, out_of_memory)
    with pytest.raises(ResourceError, match=rf"cpu: out of memory .*\n.*{advice}") as caught:
        fit(run)
    assert caught.value.exit_code == 6
    assert run.status["state"] == "failed"


@pytest.mark.battery(31)
@pytest.mark.parametrize(
    "negatives, count, advice",
    [
        ("per_query", TOO_MUCH, "loss.n_negatives or model.dim"),
        ("per_query", 1 << 62, "loss.n_negatives or model.dim"),
        ("shared", 4, "loss.n_negatives, loss.block or model.dim"),
    ],
)
def test_with_sampled_negatives_their_number_is_named(
    made: Made, monkeypatch: pytest.MonkeyPatch, negatives: str, count: int, advice: str
) -> None:
    run = made(f"loss.negatives={negatives}", f"loss.n_negatives={count}")
    if negatives == "shared":
        failing(monkeypatch, 3, out_of_memory)
    with pytest.raises(ResourceError, match=rf"if that is not enough, lower {advice}"):
        fit(run)


def vanish() -> None:
    raise torch.AcceleratorError("CUDA error: unspecified launch failure\nCUDA kernel errors …")


def vanish_in_older_versions() -> None:
    raise RuntimeError("CUDA error: device-side assert triggered\nCompile with …")


@pytest.mark.battery(32)
@pytest.mark.parametrize("failure", [vanish, vanish_in_older_versions])
def test_after_a_device_failure_the_run_can_be_resumed(
    made: Made, monkeypatch: pytest.MonkeyPatch, failure: Callable[[], None]
) -> None:
    run, straight = made("training.save_seconds=0"), made("training.save_seconds=0", "model.dim=4")
    fit(straight)
    failing(monkeypatch, 9, failure)
    with pytest.raises(
        ResourceError, match=r"the device stopped working \(CUDA error: \w"
    ) as caught:
        fit(run)
    assert caught.value.exit_code == 6
    assert "\nSaved checkpoints are kept" in str(caught.value)
    saved = run.last()
    assert saved is not None
    assert (saved.state.epoch, saved.state.step) == (1, 3)
    monkeypatch.undo()
    fit(run)
    assert run.tables().entities.equal(straight.tables().entities)
