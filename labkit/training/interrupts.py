"""An interrupt between two steps of a training run, never inside one."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def whole_steps() -> Iterator[Callable[[], None]]:
    """Hold an interrupt back until the step at hand is whole: until the yielded function is called.

    Only where an interrupt would raise KeyboardInterrupt here: in the main thread, under Python's
    own handler. A second interrupt is not held back.
    """
    asked = threading.Event()

    def note(number: int, frame: object) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    def stop_if_asked() -> None:
        if asked.is_set():
            raise KeyboardInterrupt

    here = threading.current_thread() is threading.main_thread()
    held = here and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if held:
        signal.signal(signal.SIGINT, note)
    try:
        yield stop_if_asked
    finally:
        if held:
            signal.signal(signal.SIGINT, signal.default_int_handler)
    stop_if_asked()
