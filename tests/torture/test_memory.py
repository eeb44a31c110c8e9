"""Memory that runs out and a device that goes away, in training and in ranking."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from allneg.cli import allneg
from allneg.errors import ResourceError
from allneg.evaluation import PROTOCOLS
from allneg.evaluation.ranks import rank
from allneg.graph import Graph
from allneg.hardware import is_out_of_memory
from allneg.models import MODELS
from allneg.recipe import Recipe
from allneg.runs import Run
from allneg.scoring import Shard, Tables
from allneg.training import fit
from allneg.training.trainer import Trainer

Made = Callable[..., Run]
TOO_MUCH = 1 << 50  # bytes


@pytest.fixture
def made(tmp_path: Path, tiny_graph: Graph, quick: Callable[..., Recipe]) -> Made:
    def create(*settings: str) -> Run:
        return Run.create(tmp_path / f"run-{len(settings)}", quick(*settings), tiny_graph)

    return create


def out_of_memory(*_: object, **__: object) -> Tensor:
    """What a CPU says, not what we think it says."""
    return torch.empty(TOO_MUCH, dtype=torch.uint8)


@pytest.mark.battery(31)
def test_memory_that_runs_out_is_recognised() -> None:
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
def test_ranking_in_less_memory_gives_equal_ranks(
    tiny_graph: Graph, most: int, protocol: str
) -> None:
    class Cramped(MODELS["transe"]):  # type: ignore[misc]
        """Has memory for so many queries at once."""

        def compare(self, query: Tensor, entities: Tensor) -> Tensor:
            asked.append(len(query))
            return out_of_memory() if len(query) > most else super().compare(query, entities)

    asked: list[int] = []
    roomy, cramped = (kind(4, 1.0) for kind in (MODELS["transe"], Cramped))
    n = tiny_graph.n_entities
    tables = Tables.start(roomy, tiny_graph.n_relations, Shard.whole(n), True, seed=0)
    wanted = rank(roomy, tables, tiny_graph, "train", PROTOCOLS[protocol], 1 << 20)
    found = rank(cramped, tables, tiny_graph, "train", PROTOCOLS[protocol], 1 << 20)
    assert found.ranks.tolist() == wanted.ranks.tolist()
    assert len(wanted.triples) == 20
    # It halves and does not begin again: nothing that was ranked is ranked twice.
    assert sum(size for size in asked if size <= most) == 40
    assert sum(size > most for size in asked) == {1: 4, 2: 3, 5: 2, 100: 0}[most]


@pytest.mark.battery(31)
def test_memory_for_not_even_one_question_is_a_problem(tiny_graph: Graph) -> None:
    class Full(MODELS["transe"]):  # type: ignore[misc]
        def compare(self, query: Tensor, entities: Tensor) -> Tensor:
            return out_of_memory()

    model = Full(4, 1.0)
    n = tiny_graph.n_entities
    tables = Tables.start(model, tiny_graph.n_relations, Shard.whole(n), True, seed=0)
    with pytest.raises(ResourceError, match="one query at a time") as caught:
        rank(model, tables, tiny_graph, "test", PROTOCOLS["allneg"], 1 << 20)
    assert caught.value.exit_code == 6


@pytest.mark.battery(31)
@pytest.mark.parametrize("command", ["evaluate", "compare", "predict"])
def test_weights_that_do_not_fit_on_a_device_are_a_problem(
    made: Made, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    run = made()
    fit(run)
    monkeypatch.setattr(Tables, "to", out_of_memory)
    said = {
        "evaluate": [run.folder],
        "compare": [run.folder, run.folder],
        "predict": [run.folder, "--head", "France", "--relation", "borders"],
    }
    with pytest.raises(ResourceError, match="use --device cpu"):
        allneg.main([command, *map(str, said[command])], standalone_mode=False)


@pytest.mark.battery(31)
def test_another_error_while_ranking_is_not_taken_for_memory(tiny_graph: Graph) -> None:
    class Wrong(MODELS["transe"]):  # type: ignore[misc]
        def compare(self, query: Tensor, entities: Tensor) -> Tensor:
            raise RuntimeError("a mistake of ours")

    model = Wrong(4, 1.0)
    n = tiny_graph.n_entities
    tables = Tables.start(model, tiny_graph.n_relations, Shard.whole(n), True, seed=0)
    with pytest.raises(RuntimeError, match="a mistake of ours"):
        rank(model, tables, tiny_graph, "test", PROTOCOLS["allneg"], 1 << 20)


def failing(monkeypatch: pytest.MonkeyPatch, step: int, failure: Callable[[], object]) -> None:
    """Let the step of that number fail."""
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
        ("training.micro_batch=1", "lower loss.block or model.dim"),
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
        ("own", TOO_MUCH, "loss.n_negatives or model.dim"),
        ("own", 1 << 62, "loss.n_negatives or model.dim"),
        ("shared", 4, "loss.n_negatives, loss.block or model.dim"),
    ],
)
def test_where_negatives_are_drawn_their_count_is_named(
    made: Made, monkeypatch: pytest.MonkeyPatch, negatives: str, count: int, advice: str
) -> None:
    run = made(f"loss.negatives={negatives}", f"loss.n_negatives={count}")
    if negatives == "shared":
        failing(monkeypatch, 3, out_of_memory)
    with pytest.raises(ResourceError, match=rf"if that is not enough, {advice}"):
        fit(run)


def vanish() -> None:
    raise torch.AcceleratorError("CUDA error: unspecified launch failure\nCUDA kernel errors …")


def vanish_in_old_words() -> None:
    raise RuntimeError("CUDA error: device-side assert triggered\nCompile with …")


@pytest.mark.battery(32)
@pytest.mark.parametrize("failure", [vanish, vanish_in_old_words])
def test_a_device_that_vanishes_leaves_what_was_saved(
    made: Made, monkeypatch: pytest.MonkeyPatch, failure: Callable[[], None]
) -> None:
    run, straight = made("training.save_seconds=0"), made("training.save_seconds=0", "model.dim=4")
    fit(straight)
    failing(monkeypatch, 9, failure)
    with pytest.raises(ResourceError, match=r"does not answer any more \(CUDA error: \w") as caught:
        fit(run)
    assert caught.value.exit_code == 6
    assert "\nWhat was saved is kept" in str(caught.value)
    saved = run.last()
    assert saved is not None
    assert (saved.state.epoch, saved.state.step) == (1, 3)
    monkeypatch.undo()
    fit(run)
    assert run.tables().entities.equal(straight.tables().entities)
