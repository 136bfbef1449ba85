import logging
import warnings

import pytest

from sccountsdiff.benchmark.quiet import quiet


@pytest.mark.parametrize("name", ["lightning.pytorch", "pytorch_lightning", "scvi"])
def test_libraries_are_silent_inside_and_as_before_after(name):
    log = logging.getLogger(name)
    before = log.level
    with pytest.raises(ValueError, match="stop"), quiet():
        assert not log.isEnabledFor(logging.WARNING) and log.isEnabledFor(logging.ERROR)
        raise ValueError("stop")
    assert log.level == before


def test_warnings_are_hidden_inside_only():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with quiet():
            warnings.warn("inside", stacklevel=1)
        warnings.warn("outside", stacklevel=1)
    assert [str(warning.message) for warning in seen] == ["outside"]
