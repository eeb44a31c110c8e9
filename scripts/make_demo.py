"""Train the run `countries-demo` that is part of the package: ComplEx, dim 32, bfloat16 weights.

python scripts/make_demo.py
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import allneg
from allneg.runs.finished import export_bf16
from allneg.runs.run import PACKAGED


def main() -> None:
    settings = {"model.dim": 32, "hardware.device": "cpu"}
    with tempfile.TemporaryDirectory() as folder:
        run = allneg.train(
            "countries", recipe="countries/complex", settings=settings, out=Path(folder, "run")
        )
        out = PACKAGED["countries-demo"]
        shutil.rmtree(out, ignore_errors=True)
        made = export_bf16(run, out, "cpu")
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    print(f"{out.name}: {size / 2**10:,.0f} KiB; test MRR {made.report.mrr:.4f}")


if __name__ == "__main__":
    main()
