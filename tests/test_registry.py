"""The registry shared by schedules, backbones, metrics, baselines and missingness patterns."""

import pytest

from sccountsdiff.registry import Registry


def test_entries_are_returned_unchanged_and_in_order():
    registry = Registry("thing")
    first, second = object(), object()
    assert registry.register("b")(first) is first
    assert registry.register("a")(second) is second
    assert registry.get("b") is registry["b"] is first
    assert registry.names() == list(registry) == ["b", "a"]
    assert "a" in registry and "c" not in registry
    assert len(registry) == 2


def test_a_name_is_taken_once():
    registry = Registry("thing")
    entry = object()
    registry.register("one")(entry)
    registry.register("one")(entry)  # the same object again, as when a module is reloaded: harmless
    with pytest.raises(ValueError, match="already a thing named 'one'"):
        registry.register("one")(object())


def test_what_is_defined_anew_takes_its_old_place():
    registry = Registry("thing")

    def define(name, value):
        @registry.register(name)
        class Mine:
            number = value

        return Mine

    define("mine", 1)
    again = define("mine", 2)
    assert registry["mine"] is again, "as when a notebook cell is run again"
    with pytest.raises(ValueError, match="already a thing named 'mine'"):

        @registry.register("mine")
        class Other:
            pass


def test_unknown_names_are_explained():
    registry = Registry("thing")
    with pytest.raises(KeyError, match="Known: none"):
        registry.get("cosine")
    registry.register("cosine")(object())
    with pytest.raises(KeyError, match="did you mean 'cosine'"):
        registry.get("cosin")
    with pytest.raises(KeyError, match="Unknown thing 'zzz'"):
        registry["zzz"]
    with pytest.raises(KeyError, match="Unknown thing None"):
        registry.get(None)
