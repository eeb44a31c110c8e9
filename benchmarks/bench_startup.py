"""Where the seconds of `allneg train` go that are not training: imports, reading, compiling, …

python benchmarks/bench_startup.py --out FILE.json

Each turn is a process of its own. All turns share caches that are empty before the first one, so
that the first also compiles what later ones find.
"""

from __future__ import annotations

import sys
import time

_BEGAN = time.perf_counter()  # before the other imports, which count

import argparse  # noqa: E402
import atexit  # noqa: E402
import gc  # noqa: E402
import importlib  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import subprocess  # noqa: E402
import tempfile  # noqa: E402
from collections.abc import Iterator  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any, NoReturn  # noqa: E402

from clock import Clock  # noqa: E402

FIRST_STEPS = 8  # these compile, allocate and capture
# What is timed, and the functions that do it.
PHASES = {
    "read the data": "allneg.training.train:read_graph",
    "choose the defaults": "allneg.training.train:planned",
    "write the run": "allneg.training.train:begin",
    "create the tables": "allneg.training.loop:make_trainer",
    "forecast": "allneg.training.loop:Forecast.__call__",
    "training": "allneg.training.loop:_Loop.train",
    "rank valid": "allneg.training.loop:_Loop._evaluate",
    "save": "allneg.training.loop:_Loop._save",
    "rank test": "allneg.training.loop:_Loop.finish",
    "baselines": "allneg.training.loop:evaluate_baselines",
    "calibration": "allneg.training.loop:calibrate",
    "write the report": "allneg.runs:Run.finish",
    "print the report": "allneg.cli.reports:print_run",
}
STEPS = f"first {FIRST_STEPS} steps"
INSIDE = ("training", "rank valid")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="where the JSON goes")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--data", default="fb15k-237", help="a set's name")
    parser.add_argument("--set", action="append", default=[], help="a setting of the recipe")
    parser.add_argument("--turns", type=int, default=2, help="processes, one after the other")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)  # began, file of the seconds
    args = parser.parse_args()
    if args.child:
        time_training(float(args.child[0]), Path(args.child[1]), args)
    import torch
    from measure import machine, write_rows

    from allneg.hardware import find_device

    device: torch.device = find_device(args.device)
    about = {"startup": args.data, "settings": args.set, **machine(device)}
    write_rows(about, rows(args), args.out)


def rows(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        caches = {"TRITON_CACHE_DIR": f"{folder}/triton", "ALLNEG_HOME": f"{folder}/home"}
        for turn in range(args.turns):
            path, began = Path(folder) / "seconds.json", time.perf_counter()
            command = [sys.executable, __file__, "--data", args.data, "--device", args.device]
            command += [word for setting in args.set for word in ("--set", setting)]
            command += ["--child", str(began), str(path)]
            subprocess.run(command, check=True, env={**os.environ, **caches}, stdout=sys.stderr)
            total, seconds = time.perf_counter() - began, json.loads(path.read_text())
            seconds["exit"] = total - sum(seconds.values())
            outside = total - sum(seconds.get(name, 0.0) for name in INSIDE)
            yield {
                "turn": turn,
                "seconds": round(total, 3),
                "outside_training": round(outside, 3),
                "phases": {name: round(value, 3) for name, value in seconds.items()},
            }


def time_training(began: float, path: Path, args: argparse.Namespace) -> NoReturn:
    """Train in this process and end it; `path` gets the seconds of each phase since `began`."""
    clock = Clock(began)
    clock.seconds["start Python"] = _BEGAN - began
    clock.switch()
    clock.seconds["other"] -= _BEGAN - began
    from allneg.cli import COLLECT_EVERY, run

    gc.set_threshold(COLLECT_EVERY)  # as `run` does
    torch = clock.phase("import torch", lambda: importlib.import_module("torch"))
    modules = ("allneg.cli.train", "allneg.cli.reports", "allneg.training.train")
    clock.phase("import allneg", lambda: [importlib.import_module(name) for name in modules])
    _time_phases(clock, torch)

    def write() -> None:
        clock.switch()
        path.write_text(json.dumps(clock.seconds))

    atexit.register(write)
    command = ["train", args.data, "--quiet", "--device", args.device]
    command += ["--out", str(path.with_name(f"run-{os.getpid()}"))]
    command += [word for setting in args.set for word in ("--set", setting)]
    sys.argv = ["allneg", *command]
    run()


def _time_phases(clock: Clock, torch: Any) -> None:
    """Replace the functions of PHASES, and the first steps, by timed ones."""

    def wait() -> None:
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()

    for name, place in PHASES.items():
        clock.time_function(name, place, wait)
    trainer = importlib.import_module("allneg.training.trainer").Trainer
    step, taken = trainer.step, 0

    def first_steps(*args: Any) -> Any:
        nonlocal taken
        taken += 1
        return step(*args) if taken > FIRST_STEPS else clock.phase(STEPS, lambda: timed(*args))

    def timed(*args: Any) -> Any:
        result = step(*args)
        wait()
        return result

    trainer.step = first_steps


if __name__ == "__main__":
    main()
