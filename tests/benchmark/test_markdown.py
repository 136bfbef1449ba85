import re

import pytest

from sccountsdiff.benchmark.markdown import escape


@pytest.mark.parametrize("text", ["a|b", "<b>", "**2**", "`x`", "[a](b)", "_a_", "a\\b"])
def test_nothing_is_left_that_has_a_meaning(text):
    escaped = escape(text)
    assert not re.search(r"(?<!\\)[|<>*`\[\]]", re.sub(r"\\\\", "", escaped))
    assert re.sub(r"\\(.)", r"\1", escaped) == text


def test_names_stay_as_they_are_and_lines_are_one():
    assert escape("gene_mean\n at (rate=0.3)") == "gene_mean at (rate=0.3)"
