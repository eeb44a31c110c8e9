"""What can go wrong in a way a person can mend: one line of what and where, one of what to do.

AllnegError                 1  anything below; the number is the exit code
├── RecipeError           2  a setting or an argument
├── DataError             3  a file of triples, an archive, a download
├── RunError              4  a run's folder: unreadable, damaged, of another version
├── Diverged            5  a loss or a score that is not finite
├── ResourceError      6  memory, disk, a device that went away
└── Interrupted   130/143  Ctrl-C or SIGTERM, after the run was saved
"""

from __future__ import annotations

import difflib
import signal
from collections.abc import Iterable


class AllnegError(Exception):
    """Something a person can mend. `str()` of it is the whole message."""

    exit_code = 1


class RecipeError(AllnegError):
    exit_code = 2


class DataError(AllnegError):
    exit_code = 3


class RunError(AllnegError):
    exit_code = 4


class Diverged(AllnegError):
    exit_code = 5


class ResourceError(AllnegError):
    exit_code = 6


class OutOfMemoryError(ResourceError):
    """Of a device or this machine, by what was asked for and not by what happened there."""


class Interrupted(AllnegError):
    def __init__(self, message: str, signal_number: int = signal.SIGINT) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal_number


def error_for_exit_code(exit_code: int, message: str) -> AllnegError:
    """A problem of the kind that ends with `exit_code`."""
    kinds = {2: RecipeError, 3: DataError, 4: RunError, 5: Diverged, 6: ResourceError}
    return kinds.get(exit_code, AllnegError)(message)


def printable(text: str, limit: int = 80) -> str:
    """`text` in quotes, with control characters escaped and the middle of a long one left out.

    Names come from files: an escape sequence in one must not reach the terminal.
    """
    if len(text) > limit:
        text = text[: limit // 2] + "…" + text[-limit // 4 :]
    return repr(text)


def counted(count: int, noun: str) -> str:
    """'1 triple', '2,000 triples'."""
    plural = noun[:-1] + "ies" if noun.endswith("y") else noun + "s"
    return f"{count:,} {noun if count == 1 else plural}"


def close_names(word: str, words: Iterable[str], most: int = 3) -> str:
    """The end of a message about an unknown `word`: '; close names: …', or nothing."""
    close = difflib.get_close_matches(word, list(words), n=most, cutoff=0.6)
    return f"; close names: {', '.join(printable(each) for each in close)}" if close else ""
