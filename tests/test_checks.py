"""What is wrong with an argument is said with its name, and with what was meant."""

from __future__ import annotations

import numpy as np
import pytest

from sccountsdiff.checks import check_keywords, check_number, keywords_of, one_of, whole_number


@pytest.mark.parametrize("value", [3, 2.5, np.float32(2.5), np.int64(3)])
def test_numbers_of_any_kind(value):
    check_number("depth", value, above=1)


@pytest.mark.parametrize("value", ["2", None, [2.0], np.ones(2)])
def test_what_is_no_number(value):
    with pytest.raises(TypeError, match="`depth` must be a number, not "):
        check_number("depth", value)


@pytest.mark.parametrize("value", [1, -3.0, np.nan, np.inf])
def test_bounds(value):
    check_number("depth", value)
    with pytest.raises(ValueError, match=f"`depth` must be a finite number above 1, not {value}"):
        check_number("depth", value, above=1)


def test_keywords_of_functions_and_classes():
    class Taker:
        def __init__(self, size, colour="red"):
            pass

    assert keywords_of(Taker) == ["size", "colour"]
    assert keywords_of(lambda a, *, b: None) == ["a", "b"]
    assert keywords_of(lambda a, **others: None) is None


def test_unknown_keywords():
    check_keywords("paint()", ["size"], ["size", "colour"])
    with pytest.raises(
        TypeError, match=r"^paint\(\) takes no argument 'color'; did you mean 'colour'\? Arguments are s"
    ):
        check_keywords("paint()", ["size", "color"], ["size", "colour"])
    with pytest.raises(TypeError, match=r"^paint\(\) takes no argument 'x'\. Arguments are none\.$"):
        check_keywords("paint()", ["x"], [])
    with pytest.raises(TypeError, match=r"^paint\(\) takes no argument 'x'\.$"):
        check_keywords("paint()", ["x"], ["size"], what=None)


@pytest.mark.parametrize("value", [3, np.int64(3), np.uint8(3), True + 2])
def test_whole_numbers_of_any_kind(value):
    found = whole_number("n_steps", value)
    assert found == 3 and type(found) is int


@pytest.mark.parametrize("value", [2.0, "3", None, np.float32(3), [3]])
def test_what_is_no_whole_number(value):
    with pytest.raises(ValueError, match=r"`n_steps` must be a whole number of at least 1, not .*: pass an int\."):
        whole_number("n_steps", value)


def test_whole_numbers_have_a_bound():
    assert whole_number("seed", 0, least=0) == 0
    for value, least in ((0, 1), (-1, 0), (4, 5)):
        with pytest.raises(ValueError, match=f"`seed` must be a whole number of at least {least}, not {value}"):
            whole_number("seed", value, least)


def test_options():
    one_of("final", "mean", ("sample", "mean"))
    one_of("rounding", None, ("random", "nb", None))
    with pytest.raises(ValueError, match=r"^`final` must be 'sample', 'mean' or None, not 'median'\.$"):
        one_of("final", "median", ("sample", "mean", None))
