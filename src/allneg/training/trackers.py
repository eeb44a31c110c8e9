"""Callbacks that send metrics to TensorBoard, Weights & Biases or MLflow.

Each package is imported only when its tracker is asked for. A resumed run is a new run of W&B and
of MLflow, in the same group or with the same name.
"""

import os
from collections.abc import Iterator, Mapping
from typing import Any

from allneg.errors import UsageError, close_names, extra
from allneg.evaluation import Report
from allneg.runs import Run
from allneg.training.callbacks import Callbacks


class Tracker(Callbacks):
    """Passes the metrics of every epoch on, and those of the report at the end."""

    epoch = 0

    def on_epoch(self, metrics: Mapping[str, Any]) -> None:
        self.epoch = metrics["epoch"]
        self.log(dict(_flat(metrics)))

    def on_end(self, report: Report | None) -> None:
        if report is not None:
            self.log(dict(_flat({report.protocol["split"]: report.metrics})))
        self.close()

    def log(self, numbers: Mapping[str, float]) -> None:
        """Write numbers by name, such as valid/mrr, at `self.epoch`."""

    def close(self) -> None:
        """Write what is left."""


class TensorBoard(Tracker):
    """Writes to the folder `tensorboard` in the run; `tensorboard --logdir runs` shows all runs."""

    def __init__(self) -> None:
        with extra("tensorboard", "--track tensorboard"):
            from torch.utils.tensorboard import SummaryWriter
        self._make: Any = SummaryWriter
        self._writer: Any = None

    def on_run(self, run: Run) -> None:
        self._folder = run.folder / "tensorboard"

    def log(self, numbers: Mapping[str, float]) -> None:
        if self._writer is None:  # what a resumed run trains again replaces what it logged before
            self._writer = self._make(self._folder, purge_step=self.epoch)
        for name, number in numbers.items():
            self._writer.add_scalar(name, number, self.epoch)
        self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class WeightsAndBiases(Tracker):
    """A run of the project `allneg`; WANDB_PROJECT names another."""

    def __init__(self) -> None:
        with extra("wandb", "--track wandb"):
            import wandb
        self._wandb = wandb

    def on_run(self, run: Run) -> None:
        name, settings = run.folder.name, run.recipe.to_settings()
        project = None if "WANDB_PROJECT" in os.environ else "allneg"
        self._run = self._wandb.init(project=project, name=name, group=name, config=settings)

    def log(self, numbers: Mapping[str, float]) -> None:
        self._run.log(dict(numbers), step=self.epoch)

    def close(self) -> None:
        self._run.finish()


class MLflow(Tracker):
    """A run of the current experiment, on the server that MLFLOW_TRACKING_URI names."""

    def __init__(self) -> None:
        with extra("mlflow", "--track mlflow"):
            import mlflow
        self._mlflow = mlflow

    def on_run(self, run: Run) -> None:
        self._mlflow.start_run(run_name=run.folder.name)
        self._mlflow.log_params(run.recipe.to_settings())

    def log(self, numbers: Mapping[str, float]) -> None:
        self._mlflow.log_metrics(dict(numbers), step=self.epoch)

    def close(self) -> None:
        self._mlflow.end_run()


TRACKERS: dict[str, type[Tracker]] = {
    "tensorboard": TensorBoard, "wandb": WeightsAndBiases, "mlflow": MLflow,
}  # fmt: skip


def tracker(name: str) -> Tracker:
    """A tracker by its name; a `UsageError` if there is none, or if its package is missing."""
    if name not in TRACKERS:
        raise UsageError(
            f"no tracker is called {name!r}{close_names(name, TRACKERS)}; use {', '.join(TRACKERS)}"
        )
    return TRACKERS[name]()


def _flat(metrics: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """valid/hits/10 for metrics["valid"]["hits"]["10"]."""
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}/")
        elif prefix or name != "epoch":
            yield prefix + name, float(value)
