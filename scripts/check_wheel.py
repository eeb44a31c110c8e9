"""Build wheel and sdist, install the wheel into empty environments, and try it there: the README's
example, the explorer and the first notebook.

python scripts/check_wheel.py                 # every Python of pyproject.toml that is found
python scripts/check_wheel.py 3.12            # one of them
python scripts/check_wheel.py --lowest 3.11   # with the lowest versions that pyproject.toml allows

uv must be on the PATH, or beside this Python. The version of torch is that of requirements.txt.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
import urllib.request
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MOST_BYTES = 2 << 20  # of the wheel
NEEDED = ("py.typed", "runs/countries-demo/run.json", "serve/static/index.html", "paper.toml")
# uv takes the folder of wheels that pip is told to use.
ENVIRONMENT = {"UV_FIND_LINKS": os.environ.get("PIP_FIND_LINKS", ""), **os.environ}
NAME = "notebooks/first-graph.ipynb"
NOTEBOOK = """import json, pathlib, sys
sys.path.insert(0, sys.argv[1])
import matplotlib, notebooks
matplotlib.use("agg")
notebooks.execute(json.loads(pathlib.Path(sys.argv[2]).read_text()))"""
_CLEAN = ("PYTHONPATH", "ALLNEG_DATA", "ALLNEG_HOME")  # of a checkout's user


def run(*command: str | Path, folder: Path = ROOT) -> str:
    """The output of a command; its end is printed and the check ends if it fails."""
    environment = {name: value for name, value in ENVIRONMENT.items() if name not in _CLEAN}
    done = subprocess.run(
        [str(word) for word in command], cwd=folder, env={**environment, "COLUMNS": "120"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"{done.stdout[-3000:]}\n{shlex.join(map(str, command))}: exit {done.returncode}")
    return done.stdout


def find_uv() -> str:
    found = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    return found or sys.exit("uv is not installed: pip install uv")


def build(uv: str, out: Path) -> Path:
    """The wheel, which must be the same from the checkout and from the sdist."""
    run(uv, "build", "--quiet", "--wheel", "--out-dir", out / "direct")
    run(uv, "build", "--quiet", "--out-dir", out / "dist")  # sdist, then the wheel made of it
    (direct,), (wheel,) = (out / "direct").glob("*.whl"), (out / "dist").glob("*.whl")
    first, second = contents(direct), contents(wheel)
    if first != second:
        names = sorted(n for n in {*first, *second} if first.get(n) != second.get(n))
        sys.exit(f"the sdist gives another wheel: {', '.join(names[:5])}")
    missing = [name for name in NEEDED if f"allneg/{name}" not in second]
    size = wheel.stat().st_size
    if missing or size > MOST_BYTES:
        sys.exit(f"{wheel.name}: {size:,} bytes of at most {MOST_BYTES:,}; missing: {missing}")
    print(f"{wheel.name}: {size / 2**10:,.0f} KiB, the same from the sdist")
    return wheel


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def find_python(version: str) -> str | None:
    """An interpreter of a version: on the PATH, one of pyenv's, or None."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    found = [*pyenv.glob(f"{version}.*/bin/python"), shutil.which(f"python{version}")]
    for path in filter(None, found):
        if subprocess.run([path, "--version"], capture_output=True, check=False).returncode == 0:
            return str(path)
    return None


def install(uv: str, python: str, wheel: Path, folder: Path, lowest: bool) -> Path:
    """The bin folder of a new environment with the wheel and what the first notebook needs."""
    run(uv, "venv", "--quiet", "--python", python, folder)
    requirements = (ROOT / "requirements.txt").read_text()
    (torch,) = re.findall(r"^torch==.*", requirements, re.MULTILINE)
    how = ["--resolution", "lowest-direct"] if lowest else []
    target = ["--quiet", "--python", folder / "bin" / "python"]
    # In another folder, uv does not use the settings of pyproject.toml, which are for the pins.
    run(uv, "pip", "install", *target, *how, f"{wheel}[plots,serve,tables]", torch, folder=folder)
    run(uv, "pip", "check", *target, folder=folder)
    return folder / "bin"


def transcripts() -> list[tuple[str, list[str]]]:
    """The commands of the README's first result, and the lines that it shows of each."""
    section = (ROOT / "README.md").read_text().partition("## A first result\n")[2]
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"^```\n(.*?)^```$", section.partition("\n## ")[0], re.S | re.M):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line.removeprefix("$ "), []))
            elif found and line != "…" and block.startswith("$ "):
                found[-1][1].append(line)
    return found


def shape(line: str) -> str:
    """A line without its numbers and spaces; of a row of a table, the number of cells."""
    if line.startswith("│"):
        return f"a row of {line.count('│')}"
    return re.sub(r"[\d.,]+ ?(s|min|MiB)?|\s+", " ", line).strip()


def try_package(tools: Path, folder: Path) -> None:
    """Run the README's commands word for word, and the explorer, away from the checkout."""
    version = run(tools / "allneg", "--version", folder=folder).split()[-1]
    where = run(tools / "python", "-c", "import allneg; print(allneg.__file__)", folder=folder)
    if not Path(where.strip()).is_relative_to(tools.parent):
        sys.exit(f"{where.strip()}: not the installed package")
    for command, lines in transcripts():
        program, *words = shlex.split(command)
        printed = {shape(line) for line in run(tools / program, *words, folder=folder).splitlines()}
        # How fast a machine is decides what is printed about time.
        for line in lines:
            if shape(line) not in printed and not line.startswith("about "):
                sys.exit(f"README.md: `{command}` does not print {line!r}")
    explore(tools, folder)
    run(tools / "python", "-c", NOTEBOOK, ROOT / "scripts", ROOT / NAME, folder=folder)
    print(f"  allneg {version}: {len(transcripts())} commands of the README, explorer, {NAME}")


def explore(tools: Path, folder: Path) -> None:
    """Start the explorer, ask it for its page and for an answer, and stop it."""
    server = subprocess.Popen(
        [tools / "allneg", "explore", "countries-demo", "--no-browser", "--port", "0"],
        cwd=folder, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert server.stderr is not None
        seen = ""
        while (found := re.search(r"explorer: (http\S+)", seen)) is None:
            line = server.stderr.readline()
            if not line:
                sys.exit(f"the explorer did not start: {seen}")
            seen += line
        for page in ("", "v1/predict?head=France&relation=borders"):
            with urllib.request.urlopen(found[1] + page, timeout=60) as answer:
                content = answer.read().decode()
        if "Germany" not in content:
            sys.exit(f"the explorer does not answer: {content[:300]}")
        server.send_signal(signal.SIGINT)
        if server.wait(30) != 130:
            sys.exit(f"the explorer ended with {server.returncode}, not with 130")
    finally:
        server.kill()
        server.wait()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = [text[-4:] for text in PROJECT["classifiers"] if text[-4:].startswith("3.")]
    parser.add_argument("versions", nargs="*", default=known, metavar="VERSION")
    parser.add_argument("--lowest", action="store_true", help="the lowest versions allowed")
    chosen = parser.parse_args()
    uv = find_uv()
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(temporary)
        wheel, tried = build(uv, out), 0
        for version in chosen.versions:
            python = find_python(version)
            print(f"Python {version}: {python or 'not found, so not tried'}", flush=True)
            if python is not None:
                tools = install(uv, python, wheel, out / f"python-{version}", chosen.lowest)
                folder = out / f"work-{version}"
                folder.mkdir()
                try_package(tools, folder)
                tried += 1
    if not tried:
        sys.exit("no Python was found")


if __name__ == "__main__":
    main()
