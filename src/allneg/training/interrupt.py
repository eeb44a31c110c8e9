"""Ctrl-C in a Python program: save the training, then raise `KeyboardInterrupt`."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from allneg.errors import Interrupted


@contextmanager
def interruptible(stopped_by: Callable[[], int] | None) -> Iterator[Callable[[], int]]:
    """`stopped_by` or, if it is None, a function that returns the number of SIGINT after Ctrl-C.

    In the second case an `Interrupted` of the block, which has saved its work, becomes a
    `KeyboardInterrupt`. A second Ctrl-C raises it at once. Only the main thread gets signals, and
    a handler that the program has set stays.
    """
    default = signal.default_int_handler
    is_main = threading.current_thread() is threading.main_thread()
    if stopped_by is not None or not is_main or signal.getsignal(signal.SIGINT) is not default:
        yield stopped_by or (lambda: 0)
        return
    received = 0

    def receive(number: int, frame: FrameType | None) -> None:
        nonlocal received
        received = number
        signal.signal(signal.SIGINT, default)

    signal.signal(signal.SIGINT, receive)
    try:
        yield lambda: received
    except Interrupted as error:
        raise KeyboardInterrupt(str(error)) from None
    finally:
        signal.signal(signal.SIGINT, default)
    if received:  # after the last step: everything is saved
        raise KeyboardInterrupt
