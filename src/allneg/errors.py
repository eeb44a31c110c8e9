"""Errors that a user can fix, and the exit code of each.

AllnegError             1  base class; `str(error)` is the whole message
├── UsageError          2  a wrong argument of a command or a function
│   └── RecipeError     2  a wrong setting in a recipe
├── DataError           3  a file of triples, an archive or a download
├── RunError            4  the folder of a run: unreadable, damaged, or from a newer version
├── Diverged            5  a loss or a score is not finite
├── ResourceError       6  memory, disk, or a device that stopped working
│   └── OutOfMemoryError
└── Interrupted   130/143  Ctrl-C or SIGTERM, after the run was saved

A message tells what is wrong, where, and what to do, in one or two lines.
"""

import contextlib
import difflib
import signal
from collections.abc import Iterable, Iterator, Sequence
from unicodedata import normalize

_MAX_COMPARED = 200  # names that difflib compares
_MAX_LENGTH = 128  # characters of a name that difflib compares
_BLOCK = 1 << 16  # names whose pairs of characters are in memory


class AllnegError(Exception):
    """An error that a user can fix."""

    exit_code = 1


class UsageError(AllnegError):
    exit_code = 2


class RecipeError(UsageError):
    pass


class DataError(AllnegError):
    exit_code = 3


class RunError(AllnegError):
    exit_code = 4


class Diverged(AllnegError):
    exit_code = 5


class ResourceError(AllnegError):
    exit_code = 6


class OutOfMemoryError(ResourceError):
    """The model or a batch is too large for a device, so another attempt fails again."""


class Interrupted(AllnegError):
    def __init__(self, message: str, signal_number: int = signal.SIGINT) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal_number


Problem = AllnegError  # its name in earlier versions


def error_for_exit_code(exit_code: int, message: str) -> AllnegError:
    """An error of the class that has this exit code."""
    classes = {2: UsageError, 3: DataError, 4: RunError, 5: Diverged, 6: ResourceError}
    return classes.get(exit_code, AllnegError)(message)


@contextlib.contextmanager
def extra(name: str, what: str) -> Iterator[None]:
    """Name the optional packages to install if an import in the block fails."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        raise UsageError(f"{what} needs {package}: pip install 'allneg[{name}]'") from None


def printable(text: str, limit: int = 80) -> str:
    """`text` in quotes, with control characters escaped and the middle of a long text cut out.

    Names come from files: an escape sequence in a name must not reach the terminal.
    """
    if len(text) > limit:
        text = text[: limit // 2] + "…" + text[-limit // 4 :]
    return repr(text)


def counted(count: int, noun: str) -> str:
    """'1 triple', '2,000 triples'."""
    plural = noun[:-1] + "ies" if noun.endswith("y") else noun + "s"
    return f"{count:,} {noun if count == 1 else plural}"


def close_names(word: str, words: Iterable[str]) -> str:
    """The end of a message about an unknown `word`: '; close names: …', or ''."""
    word, names = word[:_MAX_LENGTH], list(words)
    if len(names) > _MAX_COMPARED:
        names = _with_most_pairs(word, names)
    starts = {name[:_MAX_LENGTH]: name for name in reversed(names)}
    close = difflib.get_close_matches(word, starts, n=3, cutoff=0.6)
    names = [starts[start] for start in close]
    found = [in_other_form(name, word) or printable(name) for name in names]
    return f"; close names: {', '.join(found)}" if found else ""


def in_other_form(name: str, word: str) -> str:
    """`name` escaped if it looks like `word`, because only their Unicode forms differ; or ''."""
    if normalize("NFC", name) != normalize("NFC", word):
        return ""
    return f"{name!a}, which has another Unicode form (NFC, NFD)"


def _with_most_pairs(word: str, names: Sequence[str]) -> list[str]:
    """The names that share most pairs of neighbouring characters with `word`, for their length.

    difflib takes seconds for 100,000 names, this a few hundredths of a second.
    """
    import numpy as np  # a few names need no numpy

    def hashes(text: str) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
        """A number below 65,536 for every two neighbouring characters."""
        code = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
        return (code[:-1] * np.uint32(40503) + code[1:]) & np.uint32(0xFFFF)

    is_wanted = np.zeros(1 << 16, dtype=np.bool_)
    is_wanted[hashes(word)] = True
    overlap = np.zeros(len(names))
    for first in range(0, len(names), _BLOCK):
        block = [name[:_MAX_LENGTH] for name in names[first : first + _BLOCK]]
        ends = np.cumsum([len(name) + 1 for name in block])
        starts = np.append(0, ends[:-1])
        # The second line feed at the end gives the last name as many pairs as it has characters.
        found = is_wanted[hashes("\n".join([*block, "\n"]))]
        shared = np.add.reduceat(found, starts, dtype=np.int64)
        overlap[first : first + _BLOCK] = shared / (len(word) + ends - starts)
    best = np.argsort(-overlap, kind="stable")[:_MAX_COMPARED]
    return [names[i] for i in best.tolist() if overlap[i]]
