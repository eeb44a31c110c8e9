"""The house keeps its order: who may import whom, which guest lives where, and what nobody does.

Everything here is read from the source by `ast`; nothing is imported, so a broken room cannot
hide what is wrong with it.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "allneg"

# Rooms import leftward along this line.
LINE = (
    "errors", "home", "mesh", "recipe", "hardware", "graph", "kernels", "models", "scoring",
    "evaluation",
    "run", "training", "paper", "serving", "cli",
)  # fmt: skip
# Neighbours that leave each other alone all the same.
STRANGERS = {
    "kernels": {"graph", "hardware", "recipe", "mesh"},
    "models": {"graph", "hardware", "recipe", "mesh"},
    "graph": {"hardware", "mesh"},
    "paper": {"training"},
    "serving": {"training", "paper"},
}
EVERYWHERE = {"torch", "numpy", "safetensors", "filelock"}
# Guests with a room of their own.
GUESTS = {
    "click": "cli/*.py",
    "rich": "cli/*.py",
    "triton": "kernels/**/*gpu.py",
    "platformdirs": "home.py",
    "matplotlib": "**/plot.py",
    "optuna": "training/search/tpe.py",
    "fastapi": "serving/app.py",
    "uvicorn": "serving/server.py",
    "starlette": "serving/app.py",
    "pydantic": "serving/asked.py",
    "openTSNE": "serving/projection.py",
}
# Of the standard library, what leaves Python: where it is at home.
DOORS = {
    "ctypes": ["kernels/pairs.py"],
    "subprocess": ["kernels/compiler.py", "cli/workers.py"],
}
FILES = sorted(ROOT.rglob("*.py"))


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def imports(path: Path) -> Iterator[str]:
    """Every module that a file imports, at its top or inside a function."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            assert node.module is not None
            if node.module == "allneg":
                yield from (f"allneg.{each.name}" for each in node.names)
            else:
                yield node.module


def room(path: Path) -> str:
    """The room a file is in: graph for graph/read.py, errors for errors.py."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_every_room_is_on_the_line() -> None:
    rooms = {room(path) for path in FILES} - {"__init__", "__main__"}
    assert rooms == set(LINE)


@pytest.mark.parametrize("path", FILES, ids=named)
def test_rooms_import_leftward(path: Path) -> None:
    here = room(path)
    if here in ("__init__", "__main__"):
        return  # the doors of the house lead everywhere
    allowed = set(LINE[: LINE.index(here) + 1]) - STRANGERS.get(here, set())
    for module in imports(path):
        package, _, rest = module.partition(".")
        other = rest.partition(".")[0]
        if package == "allneg" and other in LINE:
            assert other in allowed, f"{named(path)} imports {module}"


@pytest.mark.parametrize("path", FILES, ids=named)
def test_guests_stay_in_their_rooms(path: Path) -> None:
    for module in imports(path):
        name = module.partition(".")[0]
        if name in sys.stdlib_module_names or name in EVERYWHERE or name == "allneg":
            continue
        assert name in GUESTS, f"{named(path)} imports {name}, which has no room"
        assert path in ROOT.glob(GUESTS[name]), f"{named(path)} imports {name}"


@pytest.mark.parametrize("module", DOORS)
def test_foreign_code_is_called_from_few_places(module: str) -> None:
    assert [named(path) for path in FILES if module in imports(path)] == sorted(DOORS[module])


@pytest.mark.parametrize("path", FILES, ids=named)
def test_process_groups_stay_in_their_files(path: Path) -> None:
    if named(path) in ("scoring/shard.py", "training/launch.py"):
        return
    assert not any(module.startswith("torch.distributed") for module in imports(path))
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom) and node.module == "torch":
            assert "distributed" not in {each.name for each in node.names}
        if isinstance(node, ast.Attribute):
            assert ast.unparse(node) != "torch.distributed"


@pytest.mark.parametrize("path", FILES, ids=named)
def test_nothing_is_pickled_or_evaluated(path: Path) -> None:
    unsafe = {"pickle", "marshal", "shelve", "dill", "joblib", "cloudpickle"}
    assert not unsafe & {module.partition(".")[0] for module in imports(path)}
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            called = f"{node.value.id}.{node.attr}"
            assert called not in ("torch.load", "torch.save", "np.load", "np.save"), called
        if isinstance(node, ast.Name):
            assert node.id not in ("eval", "exec", "compile"), node.id
        if isinstance(node, ast.keyword):
            assert node.arg != "allow_pickle"


@pytest.mark.parametrize("path", FILES, ids=named)
def test_rows_of_a_table_are_never_looked_up_by_brackets(path: Path) -> None:
    """The gradient of `table[ids]` adds up in another order on every run; embedding's does not."""
    for node in ast.walk(tree(path)):
        if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Attribute):
            continue
        owner = ast.unparse(node.value.value)
        is_table = owner.endswith("tables") or (named(path), owner) == ("scoring/tables.py", "self")
        if is_table and node.value.attr in ("entities", "relations"):
            assert isinstance(node.slice, ast.Slice), f"{named(path)}: {ast.unparse(node)}"


@pytest.mark.parametrize("path", FILES, ids=named)
def test_files_are_annotated_lazily_and_say_what_they_are(path: Path) -> None:
    module = tree(path)
    assert ast.get_docstring(module), "a file begins with what it is"
    needs = any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in ast.walk(module))
    assert not needs or "__future__" in imports(path)


NO_GROUP = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("click", "rich", "platformdirs", "matplotlib", "triton"):
            raise ModuleNotFoundError(f"{name} is not installed")

sys.meta_path.insert(0, Blocker())
import allneg

settings = ["model.dim=8", "training.epochs=2", "training.batch_size=2000", "hardware.device=cpu"]
run = allneg.train("countries", settings=settings, out=sys.argv[1])
answers = allneg.load(run.folder, device="cpu").tails("France", "borders", k=3)
print(run.report.count, len(answers))
"""


def test_the_core_needs_no_command_line_libraries(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", NO_GROUP, str(tmp_path / "run")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    count, answers = map(int, done.stdout.split())
    assert count > 100
    assert answers == 3
