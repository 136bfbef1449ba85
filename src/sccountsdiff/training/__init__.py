"""How the network is trained: optimiser, learning rate, weight averaging, validation that can be compared."""

from sccountsdiff.training.averaging import BestAverage
from sccountsdiff.training.divergence import LossWatch, TrainingDiverged, WatchedTraining, look_at_losses
from sccountsdiff.training.plan import CountsDiffTrainingPlan
from sccountsdiff.training.runner import CarefulRunner, as_signalled
from sccountsdiff.training.schedule import (
    default_lr,
    default_max_epochs,
    epochs_between_validations,
    warm_up_and_decay,
)

__all__ = [
    "BestAverage",
    "CarefulRunner",
    "CountsDiffTrainingPlan",
    "LossWatch",
    "TrainingDiverged",
    "WatchedTraining",
    "as_signalled",
    "default_lr",
    "default_max_epochs",
    "epochs_between_validations",
    "look_at_losses",
    "warm_up_and_decay",
]
