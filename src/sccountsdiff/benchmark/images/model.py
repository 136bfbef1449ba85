"""The image model: a network, a survival schedule and the loss, as a Lightning module."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Subset

from sccountsdiff.benchmark.images.config import ImageConfig
from sccountsdiff.benchmark.images.data import CountImages, pixel_moments
from sccountsdiff.benchmark.images.network import ImageDenoiser, linear_guess
from sccountsdiff.checkpoints import UNREADABLE
from sccountsdiff.diffusion import Prediction, count_loss, draw_noised, get_schedule
from sccountsdiff.training import LossWatch, WatchedTraining, warm_up_and_decay

Predict = Callable[[Tensor, Tensor, Tensor | None, Tensor], Prediction]
"""A prediction from noised images, times, conditions and which of these to leave out: the network, or a reference."""

NETWORK_SETTINGS = ("channels", "layers_per_block", "attention_at", "dropout", "head", "inputs")
"""Settings that are arguments of :class:`~sccountsdiff.benchmark.images.ImageDenoiser`."""


class ImageDiffusion(WatchedTraining):
    """CountsDiff on images.

    Parameters
    ----------
    config
        Settings.
    mean, variance
        Moments of each pixel (:func:`~sccountsdiff.benchmark.images.pixel_moments`).
    max_count
        Largest value of a pixel.
    names
        Names of the classes or attributes.
    multi_label
        Whether ``names`` are attributes.

    Examples
    --------
    >>> import torch
    >>> config = ImageConfig("digits", channels=(8, 8))
    >>> model = ImageDiffusion(config, torch.ones(1, 8, 8), torch.ones(1, 8, 8), 16, tuple("0123456789"))
    >>> model.shape
    (1, 8, 8)
    """

    def __init__(
        self,
        config: ImageConfig,
        mean: Tensor,
        variance: Tensor,
        max_count: int,
        names: Sequence[str],
        multi_label: bool = False,
    ):
        super().__init__()
        self.config, self.shape, self.schedule = config, tuple(mean.shape), get_schedule(config.schedule)
        self.max_count, self.names, self.multi_label = max_count, tuple(names), multi_label
        self.watch = LossWatch(config.lr)
        n_conditions = len(names) if config.conditional else 0
        options = {name: getattr(config, name) for name in NETWORK_SETTINGS} | {"multi_label": multi_label}
        self.network = ImageDenoiser(mean, variance, max_count, self.schedule, n_conditions=n_conditions, **options)

    @classmethod
    def for_images(cls, config: ImageConfig, data: CountImages) -> ImageDiffusion:
        """An untrained model for these images."""
        return cls(config, *pixel_moments(data), data.max_count, data.names, data.multi_label)

    def loss(
        self,
        x0: Tensor,
        conditions: Tensor,
        p_uncond: float,
        generator: torch.Generator | None = None,
        predict: Predict | None = None,
    ) -> Tensor:
        """Eq. 6 with one time for each image (Algorithm 1), for the network or for another way to predict."""
        noised = draw_noised(x0, self.schedule, generator=generator)
        null = torch.rand(len(x0), generator=generator, device=x0.device) < p_uncond
        prediction = (predict or self.network)(noised.xt, noised.t, conditions, null)
        return (noised.weight[:, None, None, None] * count_loss(noised.y, prediction.log_mean)).mean()

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """Loss of one batch. What it draws depends on seed, step and process, not on what came before."""
        torch.manual_seed(step_seed(self.config.seed, self.global_step, self.global_rank))
        x0, conditions = batch[0].float(), batch[1]
        if self.config.flip:
            mirrored = torch.rand(len(x0), device=x0.device) < 0.5
            x0 = torch.where(mirrored[:, None, None, None], x0.flip(-1), x0)
        loss = self.loss(x0, conditions, self.config.p_uncond)
        self.watch(loss, self)
        self.log("train_loss", loss, prog_bar=True, on_step=True, on_epoch=False)
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """Loss of one batch of held-out images with the same draws each time."""
        loss = self.heldout_loss(batch, batch_idx)
        many = self.trainer.world_size > 1
        self.log("heldout_loss", loss, prog_bar=True, on_epoch=True, batch_size=len(batch[0]), sync_dist=many)

    def heldout_loss(self, batch: tuple[Tensor, Tensor], batch_idx: int, predict: Predict | None = None) -> Tensor:
        """Loss of one batch, its times and noise drawn from the number of the batch alone."""
        generator = torch.Generator(self.device).manual_seed(batch_idx)
        return self.loss(batch[0].float(), batch[1], 0.0, generator, predict)

    def configure_optimizers(self):
        """Adam with linear warm-up, then a constant learning rate or one that falls along a cosine."""
        optimizer = torch.optim.Adam(self.parameters(), lr=self.config.lr)
        return warm_up_and_decay(optimizer, self.config.n_steps, self.config.n_warmup_steps, self.config.lr_final)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add what is needed to build the model again."""
        super().on_save_checkpoint(checkpoint)
        about = {"max_count": self.max_count, "names": list(self.names), "multi_label": self.multi_label}
        checkpoint["image_model"] = {"config": dataclasses.asdict(self.config), **about}


def step_seed(*numbers: int) -> int:
    """One seed from several numbers, far apart even for neighbouring ones.

    Examples
    --------
    >>> step_seed(0, 1) == step_seed(0, 1), step_seed(0, 1) == step_seed(1, 0)
    (True, False)
    """
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)


def load_model(path: str | Path, device: str | torch.device = "cpu") -> ImageDiffusion:
    """A model with the averaged weights of a checkpoint.

    Parameters
    ----------
    path
        A ``.ckpt`` file written by :func:`train`.
    device
        Where to put it.

    Returns
    -------
    The model, in evaluation mode.

    Examples
    --------
    >>> from sccountsdiff.benchmark.images import load_config, load_images, train
    >>> config = load_config("digits", channels=(8, 8), n_steps=2, n_warmup_steps=1)
    >>> model = train(config, load_images("digits"), "run")
    >>> load_model("run/last.ckpt").config == config
    True
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"No checkpoint at {str(path)!r}.")
    try:
        checkpoint = torch.load(path, map_location=device, weights_only=True)
        about, weights = checkpoint["image_model"], checkpoint["state_dict"]
        config = ImageConfig(**about.pop("config"))
        model = ImageDiffusion(config, weights["network.mean"], weights["network.variance"], **about)
        model.load_state_dict(weights)
    except UNREADABLE as error:
        raise ValueError(f"{path} is damaged, or no checkpoint of an image model ({type(error).__name__}).") from None
    return model.to(device).eval()


@torch.inference_mode()
def heldout_losses(model: ImageDiffusion, data: CountImages, n: int = 1000) -> dict[str, float]:
    """Loss of the network, of the mean of each pixel, and of the best linear guess from the pixel itself.

    All three see the same images, times and noise.

    Parameters
    ----------
    model
        The model, whose settings and pixel moments are used.
    data
        Images that were not trained on.
    n
        At most this many of them.

    Returns
    -------
    The losses ``network``, ``pixel_mean`` and ``linear_guess``.

    Examples
    --------
    >>> from sccountsdiff.benchmark.images import load_config, load_images
    >>> splits = load_images("digits")
    >>> model = ImageDiffusion.for_images(load_config("digits"), splits.train)
    >>> losses = heldout_losses(model, splits.heldout, n=64)
    >>> losses["pixel_mean"] > losses["linear_guess"]
    True
    """
    mean, variance = model.network.mean, model.network.variance

    def predict_by(guess: Callable[[Tensor, Tensor], Tensor]) -> Predict:
        def predict(x: Tensor, t: Tensor, conditions: Tensor | None, null: Tensor) -> Prediction:
            p = model.schedule.survival(t).to(x)[:, None, None, None]
            return Prediction(guess(x, p).clamp_min(1e-8).log())

        return predict

    linear = lambda x, p: linear_guess(x, p, mean, variance).maximum(1e-2 * (1 - p))
    predictors = {"network": None, "pixel_mean": predict_by(lambda x, p: (1 - p) * mean)}
    predictors["linear_guess"] = predict_by(linear)
    totals = dict.fromkeys(predictors, 0.0)
    was_training = model.training
    model.eval()
    some = Subset(data, range(min(n, len(data))))
    for number, batch in enumerate(DataLoader(some, model.config.batch_size)):
        batch = [part.to(model.device) for part in batch]
        for name, predict in predictors.items():
            totals[name] += model.heldout_loss(batch, number, predict).item() * len(batch[0]) / len(some)
    model.train(was_training)
    return totals
