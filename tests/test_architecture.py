"""Architecture rules: which package imports which, where third-party code is used, what is banned.

Each rule is one test that lists all violations. The source is parsed, not imported.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1] / "src" / "allneg"

# A package imports only packages to its left.
ORDER = (
    "errors", "terminal", "recipes", "paths", "recipe", "hardware", "graph", "kernels", "models",
    "scoring", "evaluation", "runs", "exports", "hub", "training", "tuning", "reproduce", "predict",
    "completer", "auditing", "serve", "cli",
)  # fmt: skip
# Packages to the left that are still off limits.
INDEPENDENT = {
    "kernels": {"recipes", "recipe", "hardware", "graph"},
    "models": {"recipes", "recipe", "hardware", "graph"},
    "graph": {"hardware"},
    "predict": {"training", "tuning", "reproduce"},
    "serve": {"training", "tuning", "reproduce", "auditing"},
}
EVERYWHERE = {"torch", "numpy", "safetensors", "filelock"}
# Which files may import a third-party package.
THIRD_PARTY = {
    "click": ["cli/*.py"],
    "rich": ["cli/*.py"],
    "triton": ["kernels/**/*gpu.py"],
    "platformdirs": ["paths.py"],
    "pooch": ["graph/datasets.py"],
    "requests": ["graph/datasets.py"],  # the errors of a download by pooch
    "fsspec": ["graph/urls.py"],
    "pyoxigraph": ["graph/rdf.py"],
    "pyarrow": ["graph/*.py", "predict/*.py", "exports/writers.py"],
    "optuna": ["tuning/study.py"],
    "fastapi": ["serve/*.py"],
    "uvicorn": ["serve/*.py"],
    "starlette": ["serve/*.py"],
    "pydantic": ["serve/*.py"],
    "openTSNE": ["predict/*.py", "serve/*.py"],
    "pandas": ["predict/results.py"],
    "sklearn": ["completer.py"],
    "wandb": ["training/trackers.py"],
    "mlflow": ["training/trackers.py"],
    "huggingface_hub": ["hub.py"],
    "matplotlib": ["tuning/study.py", "tuning/plot.py"],
}
# Which files may start processes, call C code, or talk to other processes of a training.
RESTRICTED = {
    "ctypes": [
        "kernels/compiler.py",
        "kernels/distances/compiled.py",
        "kernels/fused/softmax.py",
        "hardware.py",
    ],
    "subprocess": ["kernels/compiler.py", "cli/workers.py"],
    "torch.distributed": ["scoring/distributed.py", "training/launch.py"],
}
UNSAFE_MODULES = {"pickle", "marshal", "shelve", "dill", "joblib", "cloudpickle"}
UNSAFE_NAMES = {"eval", "exec", "compile"}
UNSAFE_CALLS = {"torch.load", "torch.save", "np.load", "np.save"}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def package_of(path: Path) -> str:
    """graph for graph/read.py, errors for errors.py."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


FILES = sorted(ROOT.rglob("*.py"))


@cache
def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text(), str(path))))


def imports(path: Path) -> Iterator[str]:
    """All modules that a file imports, also in functions; `from a import b` gives a and a.b."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_allowed(path: Path, patterns: list[str]) -> bool:
    return any(path in ROOT.glob(pattern) for pattern in patterns)


def check(violations: list[str], advice: str) -> None:
    assert not violations, f"{advice}:\n" + "\n".join(sorted(set(violations)))


def test_packages_import_only_leftward() -> None:
    inside = [path for path in FILES if package_of(path) not in ("__init__", "__main__")]
    unknown = [name_of(path) for path in inside if package_of(path) not in ORDER]
    check(unknown, "these packages have no position in ORDER")
    violations = []
    for path in inside:
        package = package_of(path)
        allowed = set(ORDER[: ORDER.index(package) + 1]) - INDEPENDENT.get(package, set())
        for module in imports(path):
            parts = module.split(".")
            forbidden = len(parts) > 1 and parts[1] in ORDER and parts[1] not in allowed
            if parts[0] == "allneg" and forbidden:
                violations.append(f"{name_of(path)} imports {module}")
    check(violations, "import only packages to the left in ORDER that are not in INDEPENDENT")


def test_third_party_packages_stay_in_their_files() -> None:
    known = sys.stdlib_module_names | EVERYWHERE | {"allneg"}
    violations = [
        f"{name_of(path)} imports {package}"
        for path in FILES
        for package in {module.partition(".")[0] for module in imports(path)} - known
        if not is_allowed(path, THIRD_PARTY.get(package, []))
    ]
    check(violations, "move the import to a file that THIRD_PARTY allows")


def test_processes_and_foreign_code_are_used_in_few_files() -> None:
    violations = []
    for path in FILES:
        used = {*imports(path)}
        used |= {ast.unparse(node) for node in nodes(path) if isinstance(node, ast.Attribute)}
        for module, allowed in RESTRICTED.items():
            uses = any(name == module or name.startswith(f"{module}.") for name in used)
            if uses and not is_allowed(path, allowed):
                violations.append(f"{name_of(path)} uses {module}")
    check(violations, "only the files in RESTRICTED may use these modules")


def test_nothing_is_pickled_or_evaluated() -> None:
    violations = []
    for path in FILES:
        found = UNSAFE_MODULES & {module.partition(".")[0] for module in imports(path)}
        for node in nodes(path):
            if isinstance(node, ast.Attribute):
                found |= UNSAFE_CALLS & {ast.unparse(node)}
            elif isinstance(node, ast.Name):
                found |= UNSAFE_NAMES & {node.id}
            elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                found.add(node.arg)
        violations += [f"{name_of(path)} uses {name}" for name in found]
    check(violations, "files from others must not run code; use safetensors or JSON")


def test_rows_of_a_table_are_not_indexed_by_tensors() -> None:
    """The gradient of `table[ids]` is summed in another order in every run; embedding's is not."""
    violations = []
    for path in FILES:
        for node in nodes(path):
            if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Attribute):
                continue
            owner = ast.unparse(node.value.value)
            is_table = owner.endswith("tables") or (name_of(path), owner) == (
                "scoring/tables.py",
                "self",
            )
            is_rows = is_table and node.value.attr in ("entities", "relations")
            if is_rows and not isinstance(node.slice, ast.Slice):
                violations.append(f"{name_of(path)}:{node.lineno}: {ast.unparse(node)}")
    check(violations, "look rows up with the methods of Tables")


def test_files_begin_with_a_docstring_and_use_absolute_imports() -> None:
    violations = []
    for path in FILES:
        module = nodes(path)[0]
        assert isinstance(module, ast.Module)
        if not ast.get_docstring(module):
            violations.append(f"{name_of(path)} has no docstring")
        if any(isinstance(node, ast.ImportFrom) and node.level for node in nodes(path)):
            violations.append(f"{name_of(path)} has a relative import")
    check(violations, "every file follows the same form")


WITHOUT_COMMAND_LINE = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in (
            "click", "rich", "platformdirs", "matplotlib", "triton", "pyarrow", "pyoxigraph"
        ):
            raise ModuleNotFoundError(f"{name} is not installed")

sys.meta_path.insert(0, Blocker())
import allneg

settings = ["model.dim=8", "training.epochs=1", "training.batch_size=2000", "hardware.device=cpu"]
run = allneg.train("countries", settings=settings, out=sys.argv[1])
answers = allneg.load(run.folder, device="cpu").tails("France", "borders", k=3)
print(run.report.count, len(answers))
"""


def test_the_library_needs_no_command_line_packages(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_COMMAND_LINE, str(tmp_path / "run")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    count, answers = map(int, done.stdout.split())
    assert count > 100
    assert answers == 3
