from __future__ import annotations

import json
from pathlib import Path

import pytest

from processes import start

pytest.importorskip("fastapi", reason="the service needs allneg[serve]")
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


RUN = """
import runpy, sys
sys.path.insert(0, {folder!r})
sys.argv = ["bench_service.py", "--toy", "--out", {out!r}]
runpy.run_path({folder!r} + "/bench_service.py", run_name="__main__")
"""


def test_the_service_benchmark_runs_at_toy_size_and_names_its_machine(tmp_path: Path) -> None:
    out = tmp_path / "service.json"
    code = RUN.format(folder=str(BENCHMARKS), out=str(out))
    process = start(exec, code, {}, out=tmp_path / "printed", OMP_NUM_THREADS="1")
    process.join(120)
    assert process.exitcode == 0
    data = json.loads(out.read_text())
    assert data["machine"]
    for kind in ("alone", "together"):
        assert 0 < data[kind]["p50_ms"] <= data[kind]["p99_ms"]
        assert data[kind]["answers"] > 0
        assert data[kind]["server_cpu_ms"] > 0
        assert 0 < data[kind]["client_cpu_ms"] < data[kind]["p99_ms"]
    assert data["resident_mib"] > 0
