"""A C file of the package, compiled once for this machine and kept in the user's cache.

A library is kept as NAME-KEY-CONTENT.so: KEY stands for source, flags, compiler and CPU, CONTENT
for the bytes of the library itself, so that a damaged one is known before it is loaded.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import stat
import subprocess
import tempfile
from importlib.resources import files
from pathlib import Path

from allneg.errors import RecipeError, printable
from allneg.paths import cache_folder

_NAMES = ("cc", "gcc", "clang")
# As exact as without them: they give up errno and traps, which nobody reads, and let a product
# and a sum round once.
_FLAGS = ("-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fPIC", "-shared")
_NATIVE = "-march=native"  # some compilers do not know it
_SECONDS = 120
_INSTEAD = "set hardware.engine to 'auto'"


def find_compiler() -> str | None:
    """The C compiler of this machine, or None."""
    if os.name != "posix":
        return None
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


def built(name: str) -> Path:
    """The library made of `name`.c, compiled now if the cache has none that is whole."""
    compiler = find_compiler()
    if compiler is None:
        raise no_compiler()
    source, folder = (files("allneg.kernels") / f"{name}.c").read_bytes(), _folder()
    stem = f"{name}-{_key(source, compiler)}"
    for path in sorted(folder.glob(f"{stem}-*.so")):
        if path.stem == f"{stem}-{_hash(path.read_bytes())}":
            return path
        path.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as place:
        made = Path(place) / "made.so"
        _compile(compiler, source, made)
        made.chmod(0o600)
        return made.replace(folder / f"{stem}-{_hash(made.read_bytes())}.so")


def no_compiler() -> RecipeError:
    return RecipeError(
        f"hardware.engine is 'compiled', but there is no C compiler ({', '.join(_NAMES)})\n"
        f"install one, such as gcc or clang; or {_INSTEAD}"
    )


def _compile(compiler: str, source: bytes, out: Path) -> None:
    done = _run([compiler, *_FLAGS, _NATIVE, "-x", "c", "-", "-o", str(out), "-lm"], source)
    if done.returncode:
        done = _run([compiler, *_FLAGS, "-x", "c", "-", "-o", str(out), "-lm"], source)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        first = next((line for line in said if "error" in line), said[0] if said else "no message")
        raise RecipeError(
            f"hardware.engine is 'compiled', but {compiler} failed: {printable(first, 200)}\n"
            f"mend the compiler; or {_INSTEAD}"
        )


def _run(command: list[str], given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            command,
            input=given,
            capture_output=True,
            check=False,
            timeout=_SECONDS,
            env={**os.environ, "LC_ALL": "C"},
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise RecipeError(
            f"hardware.engine is 'compiled', but the compiler did not run: {problem}\n"
            f"mend it; or {_INSTEAD}"
        ) from None


def _folder() -> Path:
    """Where libraries are kept: of this user alone, since what lies there will be run."""
    folder = cache_folder().absolute() / "compiled"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = folder.resolve()
        for place in (folder, *folder.parents):
            _check_closed(place, own=place == folder)
    except OSError as problem:
        raise RecipeError(
            f"{folder}: {problem.strerror}; hardware.engine 'compiled' keeps its library there\n"
            f"set ALLNEG_HOME to a folder of yours; or {_INSTEAD}"
        ) from None
    return folder


def _check_closed(place: Path, own: bool) -> None:
    """Nobody else may put a file into `place`, or rename what is in the folders above."""
    status = place.stat()
    mode = status.st_mode
    if own:
        closed = status.st_uid == os.getuid() and not mode & (stat.S_IWGRP | stat.S_IWOTH)
    else:
        closed = not mode & stat.S_IWOTH or bool(mode & stat.S_ISVTX)
    if not closed:
        raise RecipeError(
            f"{place}: others may write there; hardware.engine 'compiled' loads nothing from it\n"
            f"set ALLNEG_HOME to a folder of yours alone; or {_INSTEAD}"
        )


def _key(source: bytes, compiler: str) -> str:
    version = _run([compiler, "--version"]).stdout
    return _hash(b"\0".join([source, *map(str.encode, _FLAGS), version, _cpu()]))


def _cpu() -> bytes:
    """What tells this CPU's instructions from those of another that shares the cache."""
    try:
        lines = Path("/proc/cpuinfo").read_bytes().splitlines()
    except OSError:
        return repr(platform.uname()).encode()
    names = (b"model name", b"flags", b"Features", b"CPU part", b"isa", b"cpu")
    return b"\n".join(sorted({line for line in lines if line.startswith(names)}))


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]
