"""Compiles a C file of the package once per machine and keeps the library in the user's cache.

A library is called NAME-KEY-CONTENT.so: KEY is a hash of source, flags, compiler and CPU, CONTENT
of the library itself, so that a damaged one is found before it is loaded.
"""

import ctypes
import functools
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
from allneg.paths import cache_folder, make_folder

_SOURCES = {"pairs": "distances", "softmax": "fused"}  # C files of allneg.kernels, and where
_NAMES = ("cc", "gcc", "clang")
# These flags do not reduce precision: errno and traps are not used here, and a product followed by
# a sum is rounded once instead of twice.
_FLAGS = ("-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fPIC", "-shared")
_NATIVE = "-march=native"  # not supported by all compilers
_SECONDS = 120


class CompileError(Exception):
    """Why a library could not be built, as part of a sentence."""


def problem() -> str | None:
    """Why distances cannot be compiled here; None where they can. Compiles on the first call."""
    return _problem(os.environ.get("PATH"), os.environ.get("ALLNEG_HOME"))


@functools.cache
def _problem(path: str | None, home: str | None) -> str | None:
    try:
        load("pairs")
    except (CompileError, RecipeError) as error:  # the latter: there is no cache folder
        return str(error)
    return None


def find_compiler() -> str | None:
    """The C compiler of this machine, or None."""
    if os.name != "posix":
        return None
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


def load(name: str) -> ctypes.CDLL:
    """The library made of `name`.c."""
    path = built(name)
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise CompileError(
            f"the compiled library does not load ({error}; "
            "set ALLNEG_HOME to a folder where programs may run)"
        ) from None


def built(name: str) -> Path:
    """The library made of `name`.c, compiled now unless the cache has an intact one."""
    compiler = find_compiler()
    if compiler is None:
        raise CompileError(f"there is no C compiler ({', '.join(_NAMES)})")
    source = (files("allneg.kernels") / _SOURCES[name] / f"{name}.c").read_bytes()
    folder, stem = _folder(), f"{name}-{_key(source, compiler)}"
    for path in sorted(folder.glob(f"{stem}-*.so")):
        if path.stem == f"{stem}-{_hash(path.read_bytes())}":
            return path
        path.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        library = Path(scratch) / "library.so"
        _compile(compiler, source, library)
        library.chmod(0o600)
        return library.replace(folder / f"{stem}-{_hash(library.read_bytes())}.so")


def _compile(compiler: str, source: bytes, out: Path) -> None:
    done = _run([compiler, *_FLAGS, _NATIVE, "-x", "c", "-", "-o", str(out), "-lm"], source)
    if done.returncode:
        done = _run([compiler, *_FLAGS, "-x", "c", "-", "-o", str(out), "-lm"], source)
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        first = next((line for line in lines if "error" in line), (lines or ["no message"])[0])
        raise CompileError(f"{compiler} failed: {printable(first, 200)}")


def _run(command: list[str], stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        return subprocess.run(
            command, input=stdin, capture_output=True, timeout=_SECONDS, env=environment
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompileError(f"the C compiler did not run: {error}") from None


def _folder() -> Path:
    """Where libraries are kept: writable by this user alone, because its files are executed."""
    folder = cache_folder().absolute() / "compiled"
    try:
        make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
        folder = folder.resolve()
        for path in (folder, *folder.parents):
            _check_closed(path, own=path == folder)
    except OSError as error:
        raise CompileError(
            f"{folder}: {error.strerror}; compiled libraries are kept there "
            "(set ALLNEG_HOME to a folder that you own)"
        ) from None
    return folder


def _check_closed(path: Path, own: bool) -> None:
    """No other user but root may put a file into `path`, or rename what is in the folders above."""
    status = path.stat()
    mode, owners = status.st_mode, {os.getuid()} if own else {os.getuid(), 0}
    # In a sticky folder such as /tmp, users may rename only what is theirs.
    is_open = mode & (stat.S_IWGRP | stat.S_IWOTH) and (own or not mode & stat.S_ISVTX)
    if is_open or status.st_uid not in owners:
        reason = "other users may write there" if is_open else "belongs to another user"
        raise CompileError(
            f"{path}: {reason}, so no library is loaded from it (set ALLNEG_HOME to a folder that "
            "only you can write, under folders that only you or root can write)"
        )


def _key(source: bytes, compiler: str) -> str:
    version = _run([compiler, "--version"]).stdout
    return _hash(b"\0".join([source, *map(str.encode, _FLAGS), version, _cpu()]))


def _cpu() -> bytes:
    """The instruction set of this CPU: another machine may share the cache."""
    try:
        lines = Path("/proc/cpuinfo").read_bytes().splitlines()
    except OSError:
        return repr(platform.uname()).encode()
    names = (b"model name", b"flags", b"Features", b"CPU part", b"isa", b"cpu")
    return b"\n".join(sorted({line for line in lines if line.startswith(names)}))


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]
