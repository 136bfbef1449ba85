import logging
import warnings

from sccountsdiff.benchmark.quiet import quiet


def test_all_warnings_are_hidden_inside_only():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with quiet():
            warnings.warn("inside", stacklevel=1)
            assert not logging.getLogger("scvi").isEnabledFor(logging.WARNING)
        warnings.warn("outside", stacklevel=1)
    assert [str(warning.message) for warning in seen] == ["outside"]
