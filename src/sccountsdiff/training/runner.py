"""A training from start to end, whatever ends it."""

from __future__ import annotations

import logging
import signal

from lightning.pytorch.utilities.exceptions import SIGTERMException
from scvi.train import TrainRunner

from sccountsdiff.training.averaging import BestAverage
from sccountsdiff.training.divergence import TrainingDiverged

logger = logging.getLogger("sccountsdiff")


class CarefulRunner(TrainRunner):
    """Runs a training, and keeps what it has reached if it is interrupted or diverges."""

    def _run_training_core(self) -> None:
        average = next(callback for callback in self.trainer.callbacks if isinstance(callback, BestAverage))
        plan = self.training_plan
        try:
            # No checkpoint is let run anything.
            weights_only = None if self.ckpt_path is None else True
            self.trainer.fit(plan, self.data_splitter, ckpt_path=self.ckpt_path, weights_only=weights_only)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is raised again
            n_epochs = self.trainer.current_epoch
            has_best = average.leave_best(plan)
            self._note(is_trained=has_best or self.model.is_trained_)
            self.model._has_learnt = has_best and average.best_epoch is not None
            kept = "The model is as it was before."
            if self.model._has_learnt:
                kept = f"The weights of epoch {average.best_epoch}, the best so far, are kept: the model is trained."
            if isinstance(error, TrainingDiverged):
                raise TrainingDiverged(f"{error} {kept}") from None
            logger.warning("Training stopped after %d epochs. %s", n_epochs, kept)
            raise as_signalled(error) from None
        self._note(is_trained=True)
        self.model._has_learnt = True
        # Only the first of several processes has a history.
        self.model.history_ = self.trainer.strategy.broadcast(self.model.history_)
        # A request that came after the last step, where Lightning looks no more: what comes next is not to start.
        if self.trainer.received_sigterm:
            raise as_signalled(SIGTERMException())

    def _note(self, is_trained: bool) -> None:
        """Leave a model that can be used, and knows what it was trained on."""
        self._update_history()
        if is_trained:
            for name in ("train", "test", "validation"):
                short = {"validation": "val"}.get(name, name)
                setattr(self.model, f"{name}_indices", getattr(self.data_splitter, f"{short}_idx", None))
        self.model.module.eval()
        self.model.is_trained_ = is_trained
        self.model.to_device(self.trainer.strategy.root_device)  # each of several processes has its own
        self.model.trainer = self.trainer


def as_signalled(error: BaseException) -> BaseException:
    """What a training that was ended by a signal should raise: Lightning leaves by exits that tell nobody why.

    Parameters
    ----------
    error
        What Lightning raised.

    Returns
    -------
    ``KeyboardInterrupt`` for Ctrl-C, ``SystemExit`` with the code of the signal for a request to end, else the error itself.

    Examples
    --------
    >>> as_signalled(SIGTERMException()).code
    143
    """
    if isinstance(error, SIGTERMException):
        return SystemExit(128 + signal.SIGTERM)
    if isinstance(error, SystemExit) and isinstance(error.__context__, KeyboardInterrupt):
        return KeyboardInterrupt()
    return error
