from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the service needs allneg[serve]")
HOUSE = Path(__file__).parents[2]


def test_the_service_benchmark_runs_at_toy_size_and_names_its_machine(tmp_path: Path) -> None:
    out = tmp_path / "service.json"
    done = subprocess.run(
        [sys.executable, HOUSE / "benchmarks" / "bench_service.py", "--toy", "--out", out],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(HOUSE / "src"), "OMP_NUM_THREADS": "1"},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    data = json.loads(out.read_text())
    assert data["machine"]
    for kind in ("alone", "together"):
        assert 0 < data[kind]["p50_ms"] <= data[kind]["p99_ms"]
        assert data[kind]["answers"] > 0
        assert data[kind]["server_cpu_ms"] > 0
        assert 0 < data[kind]["client_cpu_ms"] < data[kind]["p99_ms"]
    assert data["resident_mib"] > 0
