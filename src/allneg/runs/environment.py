"""Where and by whom a run was begun."""

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
    """Versions, device and command of this process."""
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
    """Was the run in a folder begun by the torchrun that started this process?

    Then a process has failed, and torchrun starts all of them anew.
    """
    if _launcher() is None or not (folder / "run.json").exists():
        return False
    return bool(read_table(folder / "environment.json").get("launcher") == _launcher())


def _launcher() -> str | None:
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return None
    run_id = os.environ["TORCHELASTIC_RUN_ID"]
    return f"torchrun {run_id}, process {os.getppid()} on {socket.gethostname()}"
