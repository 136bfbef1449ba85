"""Both losses are beside the bar, with digits enough to see them move, on standard error."""

import io
import logging
import pickle
import re
from contextlib import redirect_stderr, redirect_stdout

import pytest
from lightning.pytorch.callbacks import Callback

from sccountsdiff import CountsDiffImputer
from sccountsdiff.progress import N_DIGITS, EpochBar


@pytest.fixture
def printed(simulate, seeded):
    """Train with a bar: the model, and what was on standard error."""

    def train(**kwargs):
        out, err = io.StringIO(), io.StringIO()
        with seeded(0), redirect_stdout(out), redirect_stderr(err):
            model = CountsDiffImputer(simulate(60).adata, n_hidden=8, n_layers=1)
            model.train(3, accelerator="cpu", **kwargs)
        assert out.getvalue() == ""
        return model, err.getvalue()

    return train


def test_losses_are_shown_as_they_are_in_the_history(printed):
    model, text = printed()
    shown = re.findall(r"3/3 .*train (\S+), validation ([^\s\]]+)", text)[-1]
    expected = [model.history[f"{name}_loss"].iloc[-1, 0] for name in ("train", "validation")]
    assert list(shown) == [f"{float(loss):#.{N_DIGITS}g}" for loss in expected]
    assert isinstance(pickle.loads(pickle.dumps(EpochBar())), EpochBar)


@pytest.mark.parametrize("kwargs", [{"enable_progress_bar": False}, {"progress_bar_refresh_rate": 0}])
def test_there_is_no_bar_if_none_is_wanted(printed, kwargs):
    assert "Training" not in printed(**kwargs)[1]


def test_the_bar_is_closed_after_an_error(printed):
    class Fails(Callback):
        def on_train_epoch_end(self, *_):
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        printed(callbacks=[Fails()])


def test_why_it_stopped_early_is_in_the_log(simulate, seeded, caplog, capsys):
    with seeded(0), caplog.at_level(logging.INFO, "sccountsdiff"):
        model = CountsDiffImputer(simulate(60).adata, n_hidden=8, n_layers=1)
        model.train(
            60, accelerator="cpu", early_stopping_patience=1, plan_kwargs={"lr": 0.0}, enable_progress_bar=False
        )
    (note,) = [record.getMessage() for record in caplog.records if record.getMessage().startswith("Stopped")]
    assert note.endswith("of 60 epochs: the validation loss did not improve further.")
    assert "Monitored metric" not in capsys.readouterr().out
