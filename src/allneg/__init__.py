"""Knowledge-base completion with every entity as a negative.

>>> import allneg
>>> run = allneg.train("countries", model="complex")
>>> run.report.mrr
>>> allneg.load(run.folder).tails("France", "borders", k=5)
"""

import importlib
import os
from typing import TYPE_CHECKING, Any

# Threads that wait for each other by spinning are ten times slower than one thread as soon as
# another program uses the same cores. torch reads this when it is imported, so it is set before.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

if TYPE_CHECKING:
    from allneg.auditing.audit import audit
    from allneg.completer import Completer
    from allneg.errors import AllnegError, Problem
    from allneg.evaluation import Report
    from allneg.exports.convert import convert
    from allneg.exports.export import export
    from allneg.graph import Graph, read_graph
    from allneg.hub import push
    from allneg.predict.predictor import Predictor, load
    from allneg.recipe import Recipe
    from allneg.runs import Run
    from allneg.runs.ensemble import ensemble
    from allneg.runs.ranking import compare, evaluate
    from allneg.runs.verify import verify
    from allneg.training.callbacks import Callbacks, Watch
    from allneg.training.extend import extend
    from allneg.training.loop import fit
    from allneg.training.plan import plan
    from allneg.training.train import resume, train
    from allneg.tuning.search import search
    from allneg.tuning.tune import tune

__version__ = "0.1.0"

__all__ = [
    "AllnegError",
    "Callbacks",
    "Completer",
    "Graph",
    "Predictor",
    "Problem",
    "Recipe",
    "Report",
    "Run",
    "Watch",
    "audit",
    "compare",
    "convert",
    "ensemble",
    "evaluate",
    "export",
    "extend",
    "fit",
    "load",
    "plan",
    "push",
    "read_graph",
    "resume",
    "search",
    "train",
    "tune",
    "verify",
]

_HOMES = {
    "AllnegError": "errors",
    "Callbacks": "training",
    "Completer": "completer",
    "Graph": "graph",
    "Predictor": "predict.predictor",
    "Problem": "errors",
    "Recipe": "recipe",
    "Report": "evaluation",
    "Run": "runs",
    "Watch": "training",
    "audit": "auditing.audit",
    "ensemble": "runs.ensemble",
    "compare": "runs.ranking",
    "convert": "exports.convert",
    "evaluate": "runs.ranking",
    "export": "exports.export",
    "extend": "training.extend",
    "fit": "training",
    "load": "predict.predictor",
    "plan": "training.plan",
    "push": "hub",
    "read_graph": "graph",
    "resume": "training.train",
    "search": "tuning.search",
    "train": "training",
    "tune": "tuning",
    "verify": "runs.verify",
}


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


def __getattr__(name: str) -> Any:
    # Names are looked up when they are used: importing allneg does not wait for torch.
    if name not in _HOMES:
        raise AttributeError(f"module 'allneg' has no attribute {name!r}")
    return getattr(importlib.import_module(f"allneg.{_HOMES[name]}"), name)
