"""What pages can ask for: values, and statements that are checked."""

from __future__ import annotations

import re
from collections.abc import Callable

from results import ResultError, look_up

VALUES: dict[str, Callable[..., str]] = {}
CLAIMS: dict[str, Callable[..., bool]] = {}

ORDINALS = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh", "twelfth"]  # fmt: skip
NUMBERS = ["none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]


def value(function):
    """Make a function known to pages as a value."""
    VALUES[function.__name__] = function
    return function


def claim(function):
    """Make a function known to pages as a statement that can be checked."""
    CLAIMS[function.__name__] = function
    return function


def call(function: Callable, arguments: list[str]):
    """Call with arguments as pages write them: texts, or ``key=value``."""
    pairs = [argument.strip().partition("=") for argument in arguments]
    positional = [key for key, equals, _ in pairs if not equals]
    return function(*positional, **{key: text for key, equals, text in pairs if equals})


def evaluate(text: str) -> str:
    """Text of a value: the result of a function of these files, or what is looked up in a table."""
    name, *arguments = text.split(" / ")
    if name in VALUES:
        return call(VALUES[name], arguments)
    return look_up(text)


def check(text: str) -> str:
    """Text of a statement, after a check that it is true."""
    match = re.fullmatch(r"(.*)\s<(.*)>", text, flags=re.DOTALL)
    if not match:
        raise ResultError(f"{text!r} should be 'text <name of a statement>'.")
    shown, statement = match.groups()
    name, *arguments = statement.split(" / ")
    if name not in CLAIMS:
        raise ResultError(f"There is no statement {name!r} in docs/_ext/statements.")
    if not call(CLAIMS[name], arguments):
        raise ResultError(f"{shown!r} is not what the saved results say ({statement}).")
    return shown


def names(text: str) -> list[str]:
    """Names that are separated by commas."""
    return [name.strip() for name in text.split(",")]
