"""The versions, device and command that a run was started with."""

from __future__ import annotations

import os
import platform
import shlex
import socket
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import torch

from allneg import __version__
from allneg.hardware import find_device
from allneg.recipe import Hardware
from allneg.runs.files import read_table


def environment(hardware: Hardware) -> dict[str, Any]:
    """What environment.json holds about this process."""
    device = find_device(hardware.device)
    return {
        "command": shlex.join(["allneg", *sys.argv[1:]]),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "allneg": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "safetensors": safetensors.__version__,
        "threads": hardware.threads or torch.get_num_threads(),
        "device": str(device),
        "cuda": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "launcher": _launcher(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def is_ours(folder: Path) -> bool:
    """Did the torchrun that started this process also start the run in a folder?

    If so, a process has failed and torchrun has restarted all of them.
    """
    if _launcher() is None or not (folder / "run.json").exists():
        return False
    return bool(read_table(folder / "environment.json").get("launcher") == _launcher())


def _launcher() -> str | None:
    run_id = os.environ.get("TORCHELASTIC_RUN_ID")
    if run_id is None:
        return None
    return f"torchrun {run_id}, process {os.getppid()} on {socket.gethostname()}"
