"""One training draw and its loss, as a scvi-tools module."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from scvi import REGISTRY_KEYS
from scvi.module.base import BaseModuleClass, LossOutput, auto_move_data
from torch import Tensor

from sccountsdiff.data.missing import is_missing
from sccountsdiff.diffusion import (
    MISSING,
    NOISED,
    OBSERVED,
    Prediction,
    Schedule,
    count_loss,
    get_schedule,
    nb_loss,
    thin,
)
from sccountsdiff.nn import Backbone, CountsDenoiser, get_backbone

OBSERVED_KEY = "observed"
"""Registry key of the mask layer (True = observed)."""

NOTHING_KNOWN_SHARE = 0.15
"""Share of training cells of which nothing is shown clean, so that the model can generate."""

LAST_TIME_SHARE = 0.3
"""Share of training cells at t = 1, where the one-pass mean is read off and where the weight of Eq. 6 vanishes."""


class CountsDiffModule(BaseModuleClass):
    """CountsDiff on cells: the forward process is the inference step, the denoiser the generative one.

    Parameters
    ----------
    gene_means
        Mean count of each gene in the training data.
    backbone
        Name or class of the backbone.
    schedule
        Name of a survival schedule or a schedule.
    head
        ``"softplus"``, ``"poisson"`` or ``"nb"``.
    n_categories
        Number of categories of each categorical covariate.
    continuous_location, continuous_scale
        Mean and standard deviation of each continuous covariate in the training data.
    expressed
        Genes expressed in each category of the label, ``(labels, genes)``; zeros of such genes count as missing.
        ``None``: zeros are data.
    label_position
        Which of the categorical covariates is the label that ``expressed`` refers to.
    observed_training
        Show a random share of every training cell clean and flagged as known (and t = 1 more often).
    p_uncond
        Share of training cells whose covariates are dropped, for guidance.
    backbone_kwargs
        Settings of the backbone.
    """

    def __init__(
        self,
        gene_means: np.ndarray,
        backbone: str | type[Backbone] = "mlp",
        schedule: str | Schedule = "cosine",
        head: str = "nb",
        n_categories: Sequence[int] = (),
        continuous_location: Sequence[float] = (),
        continuous_scale: Sequence[float] = (),
        expressed: np.ndarray | None = None,
        label_position: int = 0,
        observed_training: bool = True,
        p_uncond: float = 0.2,
        backbone_kwargs: dict | None = None,
    ):
        super().__init__()
        self.schedule = get_schedule(schedule)
        self.observed_training = observed_training
        self.p_uncond = p_uncond
        self.label_position = label_position
        self.register_buffer("n_categories", torch.as_tensor(list(n_categories), dtype=torch.long))
        # In double precision: single precision has nothing left of a date in seconds once its mean is subtracted.
        self.register_buffer("location", torch.as_tensor(list(continuous_location), dtype=torch.float64))
        self.register_buffer("scale", torch.as_tensor(list(continuous_scale), dtype=torch.float64))
        self.register_buffer("expressed", None if expressed is None else torch.as_tensor(expressed, dtype=torch.bool))
        network = get_backbone(backbone)(len(gene_means), CountsDenoiser.n_outputs(head), **(backbone_kwargs or {}))
        self.denoiser = CountsDenoiser(
            network, torch.as_tensor(gene_means), self.schedule, head, n_categories, len(self.location)
        ).float()  # as the counts are read, whatever torch's default is

    @property
    def has_covariates(self) -> bool:
        """Whether the model is conditioned on anything."""
        return len(self.n_categories) + len(self.location) > 0

    @property
    def knows_null(self) -> bool:
        """Whether training has cells without covariates: the null state can be used."""
        return self.p_uncond > 0 or not self.has_covariates

    # What a minibatch says ------------------------------------------------------------------------------------------

    @auto_move_data
    def read(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Counts, which of them are missing, and covariates of a minibatch.

        NaN, a False in the mask layer and, with ``zeros="missing"``, a zero of a gene that the cell's type expresses
        (any type, if the cell's own is unknown) all mean that the count is missing.
        """
        x = tensors[REGISTRY_KEYS.X_KEY].float()
        n = len(x)
        categories = tensors.get(REGISTRY_KEYS.CAT_COVS_KEY)
        categories = x.new_zeros(n, 0, dtype=torch.long) if categories is None else categories.long()
        continuous = tensors.get(REGISTRY_KEYS.CONT_COVS_KEY)
        continuous = x.new_zeros(n, 0) if continuous is None else continuous
        continuous = ((continuous.double() - self.location) / self.scale).float()
        expressed = None
        if self.expressed is not None:
            # The code after the last one is a type that was not there in training.
            expressed = torch.cat([self.expressed, self.expressed.any(0, keepdim=True)])
            expressed = expressed[categories[:, self.label_position]]
        missing = is_missing(x, tensors.get(OBSERVED_KEY), expressed)
        return {"x0": x.masked_fill(missing, 0), "missing": missing, "categories": categories, "continuous": continuous}

    def denoise_with(self, categories: Tensor, continuous: Tensor) -> Callable[..., Prediction]:
        """The denoiser for these cells' covariates, as :func:`~sccountsdiff.diffusion.guide` wants it.

        A cell with a category that was not there in training is in the null state.
        """
        unseen = (categories >= self.n_categories).any(1)
        categories = categories.masked_fill(unseen[:, None], 0)

        def denoise(x: Tensor, status: Tensor, t: Tensor, null: Tensor) -> Prediction:
            copies = len(x) // len(categories)  # 2 under guidance
            t = t.to(x.dtype)
            return self.denoiser(
                x, status, t, categories.repeat(copies, 1), continuous.repeat(copies, 1), null | unseen.repeat(copies)
            )

        return denoise

    # One training draw ----------------------------------------------------------------------------------------------

    def _get_inference_input(self, tensors: Mapping[str, Tensor], **kwargs) -> dict[str, Tensor]:
        return self.read(tensors)

    def inference(
        self,
        x0: Tensor,
        missing: Tensor,
        categories: Tensor,
        continuous: Tensor,
        generator: torch.Generator | None = None,
    ) -> dict[str, Tensor]:
        """Forward process: draw a time, what is known, and the noised state (Algorithm 1)."""
        n = len(x0)

        def uniform(*shape: int) -> Tensor:
            return torch.rand(shape, generator=generator, device=x0.device)

        # One time in each n-th of [0, 1]: uniform, and the loss varies less from batch to batch.
        t = (torch.randperm(n, generator=generator, device=x0.device) + uniform(n)) / n
        t = self.schedule.snap(t).to(x0.dtype).clamp_min(1e-4)
        status = torch.full_like(x0, NOISED)
        weight = self.schedule.weight(t).to(x0.dtype)
        if self.observed_training:
            last = uniform(n) < LAST_TIME_SHARE
            t = t.masked_fill(last, 1.0)
            weight = weight.masked_fill(last, 1.0)  # the mean weight of the other times
            share = uniform(n, 1) * (uniform(n, 1) >= NOTHING_KNOWN_SHARE)
            status = status.masked_fill(uniform(*x0.shape) < share, OBSERVED)
        status = status.masked_fill(missing, MISSING)
        xt = x0.clone()
        noised = status == NOISED
        p = self.schedule.survival(t).to(x0.dtype)[:, None].expand_as(x0)
        xt[noised] = thin(x0[noised], p[noised], generator)
        return {
            "xt": xt,
            "status": status,
            "t": t,
            "weight": weight,
            "y": x0 - xt,
            "null": uniform(n) < self.p_uncond,
            "categories": categories,
            "continuous": continuous,
        }

    def _get_generative_input(self, tensors, inference_outputs: dict[str, Tensor], **kwargs) -> dict[str, Tensor]:
        return {key: inference_outputs[key] for key in ("xt", "status", "t", "null", "categories", "continuous")}

    def generative(
        self, xt: Tensor, status: Tensor, t: Tensor, null: Tensor, categories: Tensor, continuous: Tensor
    ) -> dict[str, Prediction]:
        """Predict the remaining counts."""
        return {"prediction": self.denoise_with(categories, continuous)(xt, status, t, null)}

    def loss(self, tensors, inference_outputs: dict[str, Tensor], generative_outputs: dict[str, Prediction]):
        """Eq. 6 over the noised entries; the dispersion has a likelihood of its own, around the same mean."""
        y, prediction = inference_outputs["y"], generative_outputs["prediction"]
        noised = inference_outputs["status"] == NOISED
        loss = count_loss(y, prediction.log_mean)
        if prediction.log_dispersion is not None:
            loss = loss + nb_loss(y, prediction.log_mean.detach(), prediction.log_dispersion)
        loss = (inference_outputs["weight"][:, None] * loss * noised).sum() / noised.sum().clamp_min(1)
        return LossOutput(loss=loss, n_obs_minibatch=len(y))

    def sample(self, *args, **kwargs):
        """Draws are made by the model's ``impute`` and ``generate``; a minibatch alone does not say what is known."""
        raise NotImplementedError("Use the model's `impute`, `generate` or `posterior_predictive_sample`.")
