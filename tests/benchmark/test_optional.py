import pytest

from sccountsdiff.benchmark.optional import EXTRAS, missing_packages, optional_import


def test_what_is_there_is_imported():
    import math

    assert optional_import("math", "Counting") is math


@pytest.mark.parametrize("extra", EXTRAS)
def test_what_is_not_there_is_named_with_the_extra_that_brings_it(extra):
    with pytest.raises(ImportError, match=rf"Counting needs the package 'nothing'.*sccountsdiff\[{extra}\]"):
        optional_import("nothing.at_all", "Counting", extra)


def test_an_error_inside_of_a_package_is_not_hidden(tmp_path, monkeypatch):
    (tmp_path / "half_broken.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ZeroDivisionError):
        optional_import("half_broken", "Counting")


def test_missing_packages_of_an_extra(monkeypatch):
    monkeypatch.setitem(EXTRAS, "mine", ("math", "no_such_module", "json"))
    assert missing_packages("mine") == missing_packages("no_such_module") == ["no_such_module"]
    assert missing_packages("math") == []
