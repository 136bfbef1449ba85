"""Checks of arguments, stated once for all who take them; each message names the argument."""

from __future__ import annotations

import difflib
import inspect
import operator
from collections.abc import Callable, Iterable, Sequence
from numbers import Integral, Real
from typing import Any

LARGEST = 1e30
"""Above it, numbers are as good as infinite: counts are in single precision, which ends at 3e38."""


def whole_number(name: str, value: object, least: int = 1, below: int = 2**63) -> int:
    """The value as an ``int``; an error if it is not an integer of at least ``least`` and below ``below``.

    By default that is what fits into 64 bits: neither arrays nor files hold larger numbers.

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
    if number >= below:
        raise ValueError(f"`{name}` must be below {below}, not {value}.")
    return number


def one_of(name: str, value: object, options: Sequence) -> None:
    """Refuse what is not one of the options."""
    if value not in options:
        *first, last = map(repr, options)
        raise ValueError(f"`{name}` must be {', '.join(first)} or {last}, not {value!r}.")


def check_number(name: str, value: object, *, above: float | None = None) -> None:
    """Refuse what is no number or, with a bound, not finite and above it.

    Examples
    --------
    >>> check_number("depth", 0.5, above=1)
    Traceback (most recent call last):
    ...
    ValueError: `depth` must be a finite number above 1, not 0.5.
    """
    if not isinstance(value, Real):
        raise TypeError(f"`{name}` must be a number, not {value!r}.")
    if isinstance(value, Integral) and abs(value) >= 2**63:  # of which neither numpy nor torch make a float
        raise ValueError(f"`{name}` must be a number of less than 64 bits, or a float, not {value}.")
    if above is not None and not above < value < LARGEST:
        raise ValueError(f"`{name}` must be a finite number above {above}, not {value}.")


def check_share(name: str, value: Any) -> None:
    """Refuse what is no number within [0, 1].

    Examples
    --------
    >>> check_share("eta", 1.5)
    Traceback (most recent call last):
    ...
    ValueError: `eta` must be within [0, 1], not 1.5.
    """
    check_number(name, value)
    if not 0 <= value <= 1:
        raise ValueError(f"`{name}` must be within [0, 1], not {value}.")


def keywords_of(function: Callable) -> list[str] | None:
    """Names of the arguments of a function or a class; ``None`` if it takes any.

    Examples
    --------
    >>> keywords_of(check_number)
    ['name', 'value', 'above']
    """
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return [parameter.name for parameter in parameters]


def check_keywords(taker: str, given: Iterable[str], allowed: Iterable[str], what: str | None = "Arguments") -> None:
    """Refuse arguments that are not among those allowed, with the one that may have been meant, and all of them.

    With ``what=None`` they are not listed.

    Examples
    --------
    >>> check_keywords("MLP", ["n_hiden"], ["n_hidden", "n_layers"])
    Traceback (most recent call last):
    ...
    TypeError: MLP takes no argument 'n_hiden'; did you mean 'n_hidden'? Arguments are n_hidden, n_layers.
    """
    allowed = list(allowed)
    for name in given:
        if name not in allowed:
            close = difflib.get_close_matches(name, allowed, n=1)
            raise TypeError(
                f"{taker} takes no argument {name!r}"
                + (f"; did you mean {close[0]!r}?" if close else ".")
                + (f" {what} are {', '.join(allowed) or 'none'}." if what else "")
            )
