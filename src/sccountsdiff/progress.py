"""How training shows its progress: losses with enough digits to see them move, on standard error."""

from __future__ import annotations

import logging
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback, ProgressBar
from tqdm.auto import tqdm

logger = logging.getLogger("sccountsdiff")

SHOWN = {"train_loss": "train", "validation_loss": "validation"}
"""Losses, and what they are called beside the bar."""

N_DIGITS = 5
"""Digits of a loss: with three it seems to stand still while the model still learns."""


class EpochBar(ProgressBar):
    """A bar over epochs with the losses of training and validation."""

    def __init__(self) -> None:
        super().__init__()
        self._bar: Any = None
        self._is_enabled = True

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_bar": None}  # bars cannot be pickled, trained models can

    def disable(self) -> None:
        """Show nothing, as on all processes but the first."""
        self._is_enabled = False

    def enable(self) -> None:
        """Show the bar."""
        self._is_enabled = True

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Open the bar."""
        self._bar = tqdm(total=trainer.max_epochs, desc="Training", unit="epoch", disable=not self._is_enabled)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Move the bar, and show the losses."""
        losses = {name: trainer.callback_metrics[name] for name in SHOWN if name in trainer.callback_metrics}
        texts = [f"{SHOWN[name]} {float(loss):#.{N_DIGITS}g}" for name, loss in losses.items()]
        self._bar.set_postfix_str(", ".join(texts), refresh=False)
        self._bar.update()

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Close the bar."""
        if self._bar is not None:
            self._bar.close()

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        """Close the bar."""
        self.teardown(trainer, pl_module, "fit")


class EarlyStoppingNote(Callback):
    """Says why training ended before its last epoch in the log of this package; scvi-tools would print it."""

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Take the reason from the callback that has it, which comes after this one."""
        for callback in trainer.callbacks:
            if getattr(callback, "early_stopping_reason", None) is not None:
                callback.early_stopping_reason = None
                logger.info(
                    "Stopped after %d of %s epochs: the validation loss did not improve further.",
                    trainer.current_epoch,
                    trainer.max_epochs,
                )


def progress_callbacks(trainer_kwargs: dict[str, Any]) -> list[Callback]:
    """The callbacks above, without the bar if the trainer is told to show none, or another one.

    Takes scvi-tools' own bar out of the settings of the trainer.

    Examples
    --------
    >>> [type(callback).__name__ for callback in progress_callbacks({})]
    ['EarlyStoppingNote', 'EpochBar']
    >>> [type(callback).__name__ for callback in progress_callbacks({"enable_progress_bar": False})]
    ['EarlyStoppingNote']
    """
    shows = trainer_kwargs.get("enable_progress_bar", True) and trainer_kwargs.get("progress_bar_refresh_rate", 1)
    if not shows or "simple_progress_bar" in trainer_kwargs:
        return [EarlyStoppingNote()]
    trainer_kwargs["simple_progress_bar"] = False
    return [EarlyStoppingNote(), EpochBar()]
