from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from sccountsdiff import pl


def test_history_marks_the_best_validation_epoch(ax):
    losses = {"train_loss": [3.0, 2.0, 1.0], "validation_loss": [3.0, 1.5, 2.0]}
    model = SimpleNamespace(history={k: pd.DataFrame({k: v}, dtype=object) for k, v in losses.items()})
    assert pl.history(model, ax=ax) is ax
    training, validation, kept = ax.get_lines()
    np.testing.assert_array_equal(training.get_ydata(), losses["train_loss"])
    np.testing.assert_array_equal(validation.get_ydata(), losses["validation_loss"])
    assert (kept.get_xdata()[0], kept.get_ydata()[0]) == (1, 1.5)


def test_history_without_validation(ax):
    model = SimpleNamespace(history={"train_loss": pd.DataFrame({"train_loss": [2.0, 1.0]})})
    pl.history(model, ax=ax)
    assert len(ax.get_lines()) == 1


def test_history_of_an_untrained_model_is_refused():
    with pytest.raises(ValueError, match="no training history"):
        pl.history(SimpleNamespace(history=None))
