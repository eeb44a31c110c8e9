"""How processes start together, and what they decide after a step."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from allneg.errors import UsageError
from allneg.scoring.distributed import Pending
from allneg.training import train
from allneg.training.launch import StepDecision, _check_equal
from processes import start_command


def test_a_save_that_is_under_way_is_not_requested_again() -> None:
    """The answer arrives one step later; until then the save is still due."""
    group = SimpleNamespace(start_max=lambda number: Pending())
    world: Any = SimpleNamespace(size=2, is_rank_zero=True, everyone=group)
    decision = StepDecision(world, lambda: 0)
    saves = [decision(is_due)[1] for is_due in (False, True, True, False, False, False)]
    assert saves == [False, False, True, False, False, False]


@pytest.mark.battery(82)
@pytest.mark.parametrize(
    "variables, message",
    [
        ({"WORLD_SIZE": "abc"}, "WORLD_SIZE is 'abc', not a number"),
        ({"WORLD_SIZE": ""}, "WORLD_SIZE is '', not a number"),
        ({"WORLD_SIZE": "-2"}, "WORLD_SIZE is '-2', not a number"),
        ({"WORLD_SIZE": "9" * 5000}, "WORLD_SIZE is '9999"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE is 0"),
        ({"WORLD_SIZE": "2", "RANK": "one"}, "RANK is 'one', not a number"),
        ({"WORLD_SIZE": "2", "RANK": "2"}, "RANK is 2, but WORLD_SIZE is 2"),
        ({"TORCHELASTIC_MAX_RESTARTS": "no"}, "TORCHELASTIC_MAX_RESTARTS is 'no', not a number"),
    ],
)
def test_variables_that_torchrun_did_not_set_are_named(
    tiny_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=f"{message}.*; start the processes with `torchrun`"):
        train(tiny_folder)
    assert not (tmp_path / "runs").exists()


@pytest.mark.battery(83)
def test_processes_with_other_arguments_than_rank_zero_are_named() -> None:
    first = json.dumps({"--out": "run", "model.dim": 4})
    _check_equal([first, first])
    with pytest.raises(UsageError, match=r"process 2 has model\.dim 8, but process 0 has 4; start"):
        _check_equal([first, first, first.replace("4", "8")])
    with pytest.raises(UsageError, match=r"process 1 has training\.seed None, but process 0 has 1"):
        _check_equal([json.dumps({"training.seed": 1}), "{}"])


@pytest.mark.battery(83)
def test_processes_with_different_meshes_are_refused(tiny_folder: Path, tmp_path: Path) -> None:
    """Earlier, they were aborted by a signal."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    started = {
        tmp_path / rank: start_command(
            "train", tiny_folder, "--mesh", mesh, "--out", tmp_path / "run", "--device", "cpu",
            err=tmp_path / rank, WORLD_SIZE="2", RANK=rank, MASTER_ADDR="127.0.0.1",
            MASTER_PORT=port,
        )
        for rank, mesh in (("0", "rows=2"), ("1", "batch=2"))
    }  # fmt: skip
    for err, process in started.items():
        process.join(100)
        errors = err.read_text()
        message = "process 1 has hardware.mesh batch=2, but process 0 has rows=2"
        assert (process.exitcode, message in errors) == (2, True), errors
    assert not (tmp_path / "run").exists()
