"""Checks of arguments, stated once for all who take them; each message names the argument."""

from __future__ import annotations

import operator
from collections.abc import Sequence


def whole_number(name: str, value: object, least: int = 1) -> int:
    """The value as an ``int``; an error if it is not an integer of at least ``least``.

    Floats are refused even if they are whole: 3.0 is more often a slip than meant.
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(
            f"`{name}` must be a whole number of at least {least}, not {value!r} ({type(value).__name__}): pass an int."
        ) from None
    if number < least:
        raise ValueError(f"`{name}` must be a whole number of at least {least}, not {value}.")
    return number


def one_of(name: str, value: object, options: Sequence) -> None:
    """Refuse what is not one of the options."""
    if value not in options:
        *first, last = map(repr, options)
        raise ValueError(f"`{name}` must be {', '.join(first)} or {last}, not {value!r}.")
