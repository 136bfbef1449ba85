"""What all commands have in common: errors of one line, the same general options, one kind of outcome, and stopping."""

from __future__ import annotations

import argparse
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn


class UsageError(ValueError):
    """A command line that cannot be understood."""


class Parser(argparse.ArgumentParser):
    """Parser that says in one line what is wrong, and takes no abbreviations, which new options would make ambiguous.

    Examples
    --------
    >>> Parser(prog="sccountsdiff train").parse_args(["--sed", "1"])
    Traceback (most recent call last):
        ...
    sccountsdiff.command.UsageError: unrecognized arguments: --sed 1 (see sccountsdiff train --help)
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})

    def error(self, message: str) -> NoReturn:
        """Raise what is otherwise printed below the usage."""
        raise UsageError(f"{message} (see {self.prog} --help)")


def whole(least: int) -> Callable[[str], int]:
    """Type of options that take a whole number of at least ``least``.

    Examples
    --------
    >>> whole(1)("-3")
    Traceback (most recent call last):
        ...
    argparse.ArgumentTypeError: must be a whole number of at least 1, not -3
    """

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least:
            raise argparse.ArgumentTypeError(f"must be a whole number of at least {least}, not {text}")
        return number

    return read


class Outcome(NamedTuple):
    """What a command has to say: a text to read, values for programs, and its exit code."""

    text: str
    values: dict[str, Any]
    code: int = 0


def add_general_options(parser: argparse.ArgumentParser, *, seed: bool = False, overwrite: bool = False) -> None:
    """Add the options that commands share.

    Examples
    --------
    >>> parser = Parser()
    >>> add_general_options(parser, overwrite=True)
    >>> parser.parse_args(["--quiet"])
    Namespace(overwrite=False, json=False, quiet=True, traceback=False)
    """
    group = parser.add_argument_group("general")
    if seed:
        group.add_argument(
            "--seed", type=whole(0), default=0, metavar="N", help="seed of all random numbers (default: 0)"
        )
    if overwrite:
        group.add_argument("--overwrite", action="store_true", help="replace what is there")
    group.add_argument("--json", action="store_true", help="print the summary as JSON")
    group.add_argument("--quiet", action="store_true", help="no progress bars and no summary; warnings are shown")
    group.add_argument("--traceback", action="store_true", help="show where in the code an error comes from")


class Stop:
    """Which signal has asked to stop, if any has."""

    number: int | None = None

    def __bool__(self) -> bool:
        return self.number is not None

    @property
    def name(self) -> str:
        """Name of the signal."""
        return "" if self.number is None else signal.Signals(self.number).name

    @property
    def code(self) -> int:
        """The exit code that shells and workflow managers expect: 130 after SIGINT, 143 after SIGTERM."""
        return 0 if self.number is None else 128 + self.number


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Remember SIGINT and SIGTERM, and end the work of the ``with`` block by ``KeyboardInterrupt``.

    Lightning swallows both while it trains; what it makes of them is left to it, but the exit code is known.

    Examples
    --------
    >>> import os
    >>> with stoppable() as stop:
    ...     try:
    ...         os.kill(os.getpid(), signal.SIGTERM)
    ...     except KeyboardInterrupt:
    ...         print(stop.name, stop.code)
    SIGTERM 143
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop  # signals go to the main thread, which is not ours
        return

    def handle(number: int, frame: Any) -> None:
        # While it trains, Lightning has a handler of its own that calls this one, and ends after the current step.
        is_training = number == signal.SIGTERM and signal.getsignal(number) is not handle
        is_repeated = bool(stop)
        stop.number = number
        if is_repeated or not is_training:
            raise KeyboardInterrupt

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
