"""A tiny graph, a run trained on it, the command: a plugin that tests/conftest.py loads."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from allneg.cli import main
from allneg.graph import Graph
from allneg.graph.datasets import PACKAGED
from allneg.graph.graph import Vocabulary
from allneg.predict.predictor import Predictor, load
from allneg.recipe import Recipe
from allneg.runs import Run
from allneg.training import Callbacks, fit
from interpreter import interpreted

interpreted("triton.language")

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared" / "data"
PAGES = ("README.md", "docs/*.md", "notebooks/*.ipynb")

# 12 entities, 3 relations; every entity of valid and test is in train.
TRIPLES = {
    "train": """
        France borders Spain
        Spain borders France
        Spain borders Portugal
        Portugal borders Spain
        France borders Italy
        Paris capital_of France
        Madrid capital_of Spain
        Lisbon capital_of Portugal
        Paris in France
        Madrid in Spain
        Lisbon in Portugal
        Rome in Italy
        Sicily in Italy
        Corsica in France
        France in Europe
        Spain in Europe
        Paris in Europe
        Madrid in Europe
        Europe in Earth
        France in Earth
    """,
    "valid": """
        Italy borders France
        Italy in Europe
    """,
    "test": """
        Rome capital_of Italy
        Portugal in Europe
        Sicily in Europe
    """,
}
# A training of a fraction of a second.
QUICK = (
    "model.dim=4",
    "training.batch_size=8",
    "training.epochs=6",
    "evaluation.every=2",
    "hardware.device=cpu",
    "hardware.threads=1",
)


@pytest.fixture(autouse=True)
def plain_torch() -> Iterator[None]:
    """One thread for tiny tensors; a test's settings of torch end with it."""
    torch.set_num_threads(1)
    yield
    if torch.are_deterministic_algorithms_enabled():
        torch.use_deterministic_algorithms(False)


@pytest.fixture(scope="session")
def tiny_graph() -> Graph:
    splits = {name: [line.split() for line in _lines(text)] for name, text in TRIPLES.items()}
    triples = [triple for split in splits.values() for triple in split]
    entities = tuple(dict.fromkeys(name for head, _, tail in triples for name in (head, tail)))
    vocabulary = Vocabulary(entities, tuple(dict.fromkeys(relation for _, relation, _ in triples)))
    ids = {
        name: np.array(
            [
                (vocabulary.entity(head), vocabulary.relation(relation), vocabulary.entity(tail))
                for head, relation, tail in split
            ],
            dtype=np.int64,
        )
        for name, split in splits.items()
    }
    return Graph("tiny", vocabulary, ids["train"], ids["valid"], ids["test"])


@pytest.fixture
def tiny_folder(tmp_path: Path) -> Path:
    """The tiny graph as a folder of files."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    for name, text in TRIPLES.items():
        lines = ["\t".join(line.split()) + "\n" for line in _lines(text)]
        (folder / f"{name}.tsv").write_text("".join(lines))
    return folder


@pytest.fixture(scope="session")
def quick() -> Callable[..., Recipe]:
    """A small recipe with settings on top: `quick("model.name=transe")`."""
    return lambda *settings: Recipe().with_settings([*QUICK, *settings])


@pytest.fixture
def made(tmp_path: Path, tiny_graph: Graph, quick: Callable[..., Recipe]) -> Callable[..., Run]:
    """A new run, not trained yet: `made("model.name=transe", graph=other)`."""
    count = 0

    def create(*settings: str, graph: Graph = tiny_graph) -> Run:
        nonlocal count
        count += 1
        return Run.create(tmp_path / f"run-{count}", quick(*settings), graph)

    return create


@pytest.fixture
def trained(made: Callable[..., Run]) -> Callable[..., Run]:
    """A run trained to its end."""

    def train(*settings: str, callbacks: Callbacks | None = None, **more: Any) -> Run:
        run = made(*settings, **more)
        fit(run, callbacks)
        return run

    return train


@pytest.fixture(scope="session")
def toy_run(
    tiny_graph: Graph, quick: Callable[..., Recipe], tmp_path_factory: pytest.TempPathFactory
) -> Run:
    """A finished run on the tiny graph, for reading only; tests may change `toy_copy`."""
    folder = tmp_path_factory.mktemp("toy") / "run"
    run = Run.create(folder, quick("training.epochs=30"), tiny_graph)
    fit(run)
    return run


@pytest.fixture(scope="session")
def predictor(toy_run: Run) -> Predictor:
    """The best weights of `toy_run`, for reading only."""
    return load(toy_run.folder, device="cpu")


@pytest.fixture
def toy_copy(toy_run: Run, tmp_path: Path) -> Run:
    """A copy of the finished run."""
    return Run.open(shutil.copytree(toy_run.folder, tmp_path / "copy"))


@dataclass(frozen=True)
class Outcome:
    """The exit code and the output of a command."""

    code: int
    out: str  # on stdout
    err: str  # on stderr

    @property
    def json(self) -> Any:
        """The JSON document on stdout; NaN and Infinity are not JSON."""
        return json.loads(self.out, parse_constant=_refuse)


def _refuse(word: str) -> None:
    raise AssertionError(f"{word} is not JSON")


@pytest.fixture
def allneg(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Outcome]:
    """`allneg("info", run, "--json")` in this process; an uncaught exception fails the test."""

    def command(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["allneg", *map(str, arguments)])
        code: object = 0
        capsys.readouterr()
        try:
            main()
        except SystemExit as error:
            code = error.code
        printed = capsys.readouterr()
        assert isinstance(code, int)
        return Outcome(code, printed.out, printed.err)

    return command


@pytest.fixture(scope="session")
def small_countries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of the packaged graphs with a quarter of their entities.

    These are the 400 with the most facts, and those that a page or a notebook names.
    """
    pages = [path for pattern in PAGES for path in ROOT.glob(pattern)]
    shown = "".join(path.read_text() for path in pages)
    folders = {}
    for name, source in PACKAGED.items():
        files = {path.name: path.read_text().splitlines() for path in Path(str(source)).iterdir()}
        ends = [line.split("\t")[::2] for lines in files.values() for line in lines]
        counts = Counter(entity for pair in ends for entity in pair)
        kept = {entity for entity, _ in counts.most_common(400)}
        kept |= {entity for entity in counts if entity in shown}
        folders[name] = tmp_path_factory.mktemp("packaged") / name
        folders[name].mkdir()
        for file, lines in files.items():
            few = [line for line in lines if kept.issuperset(line.split("\t")[::2])]
            (folders[name] / file).write_text("".join(f"{line}\n" for line in few))
    return folders


@pytest.fixture
def quick_data(small_countries: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """`countries` and `countries-hard` are small graphs in this test."""
    for name, folder in small_countries.items():
        monkeypatch.setitem(PACKAGED, name, folder)


@pytest.fixture
def shared_data(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of published sets, where it is; runs find them by name."""
    if not (SHARED / "wn18rr.tar.xz").exists():
        pytest.skip("the published sets are not beside the repository (../shared/data)")
    monkeypatch.setenv("ALLNEG_DATA", str(SHARED))
    return SHARED


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]
