"""Run the GPU measurements of the pages: lanes of jobs, at the same time.

python benchmarks/gpu_jobs.py benchmarks/gpu_jobs.tsv --minutes 28 --work FOLDER

A line of the file is: lane, tab, name, tab, command for bash. Lanes run at the same time, the jobs
of a lane one after the other. Commands see $WORK, $OUT (result files), $RUNS and the functions
`left SECONDS` (seconds until the end, less so many), `minutes SECONDS` (the same in minutes) and
`after NAME`, which waits for the end of this job or of all jobs of this lane, unless --only leaves
them out: for the file $WORK/ended/NAME, which a job may also create earlier. The output of a job is
in FOLDER/log, and how it ended in FOLDER/state.json, written after each job. No job begins in the
last half minute.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import threading
import time
from pathlib import Path

FUNCTIONS = """
left() { echo $(( END - $(date +%s) - $1 > 1 ? END - $(date +%s) - $1 : 1 )); }
minutes() { python3 -c "print(round($(left $1) / 60, 2))"; }
after() { until [ -e $WORK/ended/$1 ]; do sleep 1; done; }
"""
_LAST_SECONDS = 30.0  # no job begins later


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("jobs", type=Path)
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--only", help="names of jobs, with commas between")
    args = parser.parse_args()
    only = args.only.split(",") if args.only else None
    state = run(args.jobs, args.work, time.time() + 60 * args.minutes, only)
    for name, job in state.items():
        print(f"{name}: exit code {job['code']}, {job['seconds']} s")


def run(
    file: Path, work: Path, end: float, only: list[str] | None = None
) -> dict[str, dict[str, float]]:
    """Run all jobs, or `only` some; the exit code and the seconds of each, by name."""
    work, ended = work.absolute(), work.absolute() / "ended"
    folders = {"WORK": work, "OUT": work / "out", "RUNS": work / "runs", "LOG": work / "log"}
    for folder in (*folders.values(), ended):
        folder.mkdir(parents=True, exist_ok=True)
    lanes: dict[str, list[tuple[str, str]]] = {}
    for line in file.read_text().splitlines():
        if line and not line.startswith("#"):
            lane, name, command = line.split("\t")
            jobs, is_left_out = lanes.setdefault(lane, []), only is not None and name not in only
            _mark(ended / name, is_left_out)
            if not is_left_out:
                jobs.append((name, command))
    for lane, jobs in lanes.items():
        _mark(ended / lane, not jobs)
    variables = {**os.environ, **{name: str(path) for name, path in folders.items()}}
    variables |= {"END": str(int(end)), "PYTHONUNBUFFERED": "1"}
    state: dict[str, dict[str, float]] = {}
    lock = threading.Lock()

    def work_off(lane: str) -> None:
        for name, command in lanes[lane]:
            began = time.time()
            if end - began >= _LAST_SECONDS:
                with (folders["LOG"] / f"{name}.log").open("wb") as log:
                    code = subprocess.run(
                        ["bash", "-c", FUNCTIONS + command], env=variables, stdout=log, stderr=log
                    ).returncode
                with lock:
                    state[name] = {"code": code, "seconds": round(time.time() - began, 1)}
                    (work / "state.json").write_text(json.dumps(state, indent=1) + "\n")
            _mark(ended / name, True)
        _mark(ended / lane, True)

    threads = [threading.Thread(target=work_off, args=(lane,)) for lane in lanes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return state


def _mark(file: Path, has_ended: bool) -> None:
    if has_ended:
        file.touch()
    else:
        file.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
