"""How many questions `complete` scores with bounds that store no scores, on any machine.

python benchmarks/bench_complete_bounds.py RUN … [--every 32] [--share .003,.03] [--out FILE]

The bounds are those that `complete` uses on some GPUs (`SharpReach`). A CPU can count the questions
that they leave, but not the time of a GPU. It stores the scores, and computes no means. To save
time, only every 32nd relation is searched. `share` is how many facts are wanted, per question.
Facts wait for their other direction in groups that are as large, per question, as in a search of
all relations. Found facts are compared with those of a search without these bounds.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import machine, write_rows
from torch import Tensor

from allneg.hardware import find_device
from allneg.kernels.attention import Negatives
from allneg.kernels.distances import fp32
from allneg.predict import complete, reach
from allneg.predict.complete import Completion
from allneg.predict.predictor import Predictor
from allneg.runs import Run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--every", type=int, default=32)
    parser.add_argument("--share", default=".003,.03")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    shares = [float(share) for share in args.share.split(",")]
    if args.device == "cpu":
        reach.attend, reach.bit_mask = sums, lambda pairs, b, n: pairs
    about = {"complete_bounds": True, **machine(find_device(args.device))}
    rows = (
        counted(folder, args.device, args.every, share) for folder in args.runs for share in shares
    )
    write_rows(about, rows, args.out)


def sums(query: Tensor, rows: Tensor, negatives: Negatives) -> tuple[Tensor, None]:
    """As `attend`, with pairs instead of bits, and without answers and means."""
    scores = fp32(query) @ fp32(rows).T
    scores[negatives.bits] = -torch.inf
    return scores.logsumexp(1).expand(2, -1), None


def counted(folder: Path, device: str, every: int, share: float) -> dict[str, Any]:
    run, predictor = Run.open(folder), Predictor.load(folder, device)
    graph = predictor.graph
    relations = range(0, graph.n_relations, every)
    top = max(1, round(share * len(relations) * graph.n_entities))
    most_pending, usual = complete._MOST_PENDING, complete.is_sharper
    complete._MOST_PENDING = max(1, most_pending * len(relations) // graph.n_relations)
    row: dict[str, Any] = {
        "data": graph.name, "model": run.recipe.model.name, "dim": run.recipe.model.dim,
        "entities": graph.n_entities, "relations": len(relations), "top": top,
    }  # fmt: skip
    found: list[Completion] = []
    try:
        for name, is_sharp in (("plain", False), ("sharp", True)):
            complete.is_sharper = lambda *_, sharp=is_sharp: sharp
            began, search = time.perf_counter(), Completion(predictor, relations, top)
            search.run()
            asked_heads = float((~search.head_logsumexp.isnan()).float().mean())
            row |= {
                "questions": search.total,
                f"{name}_scored": 1 - search.skipped / search.total,
                f"{name}_again": search.n_again / search.total,
                f"{name}_heads": asked_heads,
                f"{name}_seconds": round(time.perf_counter() - began, 1),
            }
            found.append(search)
    finally:
        complete._MOST_PENDING, complete.is_sharper = most_pending, usual
    plain, sharp = (np.sort(search.found.log_odds) for search in found)
    same = len(plain) == len(sharp) and bool(np.allclose(plain, sharp, atol=1e-4, rtol=0))
    return {**row, "same": same}


if __name__ == "__main__":
    main()
