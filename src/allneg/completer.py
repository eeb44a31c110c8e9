"""`Completer`: training and answers with the conventions of scikit-learn, but without it."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from allneg.errors import UsageError, close_names
from allneg.evaluation import Report, evaluate
from allneg.graph.memory import fact_rows
from allneg.predict.predictor import Predictor
from allneg.predict.query_files import NamedQuery
from allneg.training.train import train


class Completer:
    """An estimator: `fit` on triples of names, `predict` what is missing, `score` by the MRR.

    `settings` are those of recipes, such as {"training.epochs": 20}. A part `valid_share` of the
    triples selects the best weights and is not trained on. The run is kept in `out`, if that is
    given. After `fit`, `model_` answers queries and gives vectors, and `report_` is on valid.
    """

    def __init__(
        self,
        model: str = "complex",
        settings: Mapping[str, object] | None = None,
        valid_share: float = 0.1,
        seed: int = 0,
        device: str = "auto",
        out: str | Path | None = None,
        progress: bool = False,
    ) -> None:
        # As scikit-learn requires, arguments are stored as they are and checked in `fit`.
        self.model, self.settings, self.valid_share, self.seed = model, settings, valid_share, seed
        self.device, self.out, self.progress = device, out, progress

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments of the estimator by name."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> Completer:
        """Change arguments of the estimator."""
        names = self.get_params()
        for name in params.keys() - names.keys():
            raise UsageError(f"Completer has no argument {name!r}{close_names(name, names)}")
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __sklearn_tags__(self) -> Any:
        """What this estimator takes; only scikit-learn calls this."""
        from sklearn.utils import InputTags, Tags, TargetTags

        target, data = TargetTags(required=False), InputTags(two_d_array=True, string=True)
        return Tags(estimator_type=None, target_tags=target, input_tags=data)

    def __repr__(self) -> str:
        params = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items())
        return f"Completer({params})"

    def fit(self, triples: Any, y: None = None) -> Completer:
        """Train on triples (head, relation, tail), or anything else that `read_graph` takes."""
        settings = {
            **(self.settings or {}),
            "data.valid_share": self.valid_share,
            "data.test_share": 0.0,
            "training.seed": self.seed,
            "hardware.device": self.device,
        }
        rows = list(triples) if isinstance(triples, Iterator) else triples
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "run" if self.out is None else self.out
            run = train(rows, model=self.model, settings=settings, out=out, progress=self.progress)
            self.model_ = Predictor.load(run.folder, self.device)
            self.report_: Report | None = run.report if run.has_report else None
        return self

    def predict(self, questions: Sequence[NamedQuery]) -> list[str]:
        """The best answer to each question (head, relation, tail), one of which is None."""
        return [found[0].answer for found in self._fitted.predict(questions, k=1)]

    def score(self, triples: Any, y: None = None) -> float:
        """The filtered MRR of triples, from both sides; 0 for a triple with an unknown name."""
        names, ids, count = self._fitted.graph.vocabulary, [], 0
        for head, relation, tail in fact_rows(triples):
            count += 1
            found = (
                names.entity_ids.get(head),
                names.relation_ids.get(relation),
                names.entity_ids.get(tail),
            )
            ids += [found] if None not in found else []
        if not ids:
            return 0.0
        graph = replace(self.model_.graph, test=np.array(ids, dtype=np.int64))
        return evaluate(self.model_.model, self.model_.tables, graph).mrr * len(ids) / count

    @property
    def _fitted(self) -> Predictor:
        if not hasattr(self, "model_"):
            raise UsageError("the Completer is not fitted; call fit with triples first")
        return self.model_
