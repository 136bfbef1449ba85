"""Libraries are silent inside, users and the package itself are not."""

import io
import logging
import warnings
from contextlib import redirect_stderr, redirect_stdout

import pytest
from lightning.pytorch.callbacks import Callback

from sccountsdiff import CountsDiffImputer
from sccountsdiff.quiet import LOGGERS, quiet


@pytest.mark.parametrize("name", LOGGERS)
def test_libraries_are_silent_inside_and_as_before_after(name):
    log = logging.getLogger(name)
    before = log.level
    with pytest.raises(ValueError, match="stop"), quiet():
        assert not log.isEnabledFor(logging.WARNING) and log.isEnabledFor(logging.ERROR)
        raise ValueError("stop")
    assert log.level == before


@pytest.mark.parametrize(("all_warnings", "expected"), [(False, ["a user's", "outside"]), (True, ["outside"])])
def test_whose_warnings_are_hidden(all_warnings, expected):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with quiet(all_warnings=all_warnings):
            warnings.warn("a user's", stacklevel=1)
            for module in ("lightning.pytorch.trainer", "torch", "scvi.train"):
                warnings.warn_explicit("a library's", UserWarning, "file.py", 1, module)
        warnings.warn("outside", stacklevel=1)
    assert [str(warning.message) for warning in seen] == expected


class Warns(Callback):
    def on_train_start(self, *_):
        warnings.warn("a user's callback", stacklevel=1)


def test_training_says_nothing_but_what_users_need(simulate, seeded):
    out, err = io.StringIO(), io.StringIO()
    adata = simulate(60).adata
    with seeded(0), redirect_stdout(out), redirect_stderr(err), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        model = CountsDiffImputer(adata, n_hidden=8, n_layers=1)
        for max_epochs in (2, 30):  # the second validates first, and stops early
            model.train(max_epochs, accelerator="cpu", callbacks=[Warns()], early_stopping_patience=1, ema_decay=0)
    assert [str(warning.message) for warning in seen] == ["a user's callback"] * 2
    assert out.getvalue() == ""
    lines = [line for line in err.getvalue().replace("\r", "\n").splitlines() if line.strip()]
    assert {line.split()[0] for line in lines} <= {"Training:", "Setting", "Stopped"}
