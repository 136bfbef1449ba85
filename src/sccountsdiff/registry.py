"""A table of named things that users may add to: schedules, backbones, heads, metrics, methods, missingness patterns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import Generic, TypeVar

T = TypeVar("T")


class Registry(Generic[T]):
    """Named objects of one kind, in the order in which they were registered.

    Parameters
    ----------
    kind
        What the entries are, in the singular; used in error messages.

    Examples
    --------
    >>> greetings = Registry("greeting")
    >>> @greetings.register("hello")
    ... def hello():
    ...     return "Hello!"
    >>> greetings.get("hello")()
    'Hello!'
    >>> greetings.names()
    ['hello']
    >>> greetings.get("helo")
    Traceback (most recent call last):
    ...
    KeyError: "Unknown greeting 'helo'; did you mean 'hello'? Known: hello."
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator that files an object under ``name`` and returns it unchanged.

        What is defined anew, as by a notebook cell that is run again, takes the place of what it was.
        """

        def decorate(entry: T) -> T:
            if name in self._entries and _origin(self._entries[name]) != _origin(entry):
                raise ValueError(f"There is already a {self.kind} named {name!r}; register yours under another name.")
            self._entries[name] = entry
            return entry

        return decorate

    def get(self, name: str) -> T:
        """The entry called ``name``; a ``KeyError`` that lists the known names if there is none."""
        if name in self._entries:
            return self._entries[name]
        close = get_close_matches(str(name), self._entries, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        raise KeyError(f"Unknown {self.kind} {name!r}{hint} Known: {', '.join(self._entries) or 'none'}.")

    __getitem__ = get

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def names(self) -> list[str]:
        """All names, in order of registration."""
        return list(self._entries)

    def __repr__(self) -> str:
        return f"Registry({self.kind!r}, {self.names()})"


def _origin(entry: object) -> object:
    """Where a class or function is defined; other things are what they are."""
    return (entry.__module__, entry.__qualname__) if hasattr(entry, "__qualname__") else id(entry)
