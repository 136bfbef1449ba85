"""One training draw and its loss, as a scvi-tools module."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from scvi import REGISTRY_KEYS
from scvi.module.base import BaseModuleClass, LossOutput
from torch import Tensor

from sccountsdiff.data.missing import OBSERVED_KEY, is_missing
from sccountsdiff.diffusion import (
    Denoiser,
    NoisedCounts,
    Prediction,
    Schedule,
    draw_noised,
    get_schedule,
    indicators,
)
from sccountsdiff.diffusion.host import host_sees
from sccountsdiff.nn import Backbone, CountsDenoiser, Head, HeadInput, get_backbone, get_head


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
        Name or class of the head.
    n_categories
        Number of categories of each categorical covariate.
    continuous_location, continuous_scale
        Mean and standard deviation of each continuous covariate in the training data, or of its log.
    continuous_is_log
        Continuous covariates of which the network is told the log, as of size factors. Default: none.
    gene_max
        Largest count of each gene in the training data; ``None``: unknown.
    expressed
        Genes expressed in each category of the label, ``(labels, genes)``; zeros of such genes count as missing.
        ``None``: zeros are data.
    label_position
        Which of the categorical covariates is the label that ``expressed`` refers to.
    observed_training
        Show a random share of every training cell as observed (and t = 1 more often).
    p_uncond
        Share of training cells whose covariates are dropped, for guidance.
    n_factors
        Number of factors whose posterior is an input of the network.
    gene_groups
        Number of the group, such as the modality, of each gene: each has a depth of its own, and groups are hidden as a
        whole in training.
    backbone_kwargs
        Settings of the backbone.
    """

    def __init__(
        self,
        gene_means: np.ndarray,
        backbone: str | type[Backbone] = "mlp",
        schedule: str | Schedule = "cosine",
        head: str | type[Head] | Head = "nb",
        n_categories: Sequence[int] = (),
        continuous_location: Sequence[float] | np.ndarray = (),
        continuous_scale: Sequence[float] | np.ndarray = (),
        continuous_is_log: Sequence[bool] | np.ndarray | None = None,
        gene_max: np.ndarray | None = None,
        expressed: np.ndarray | None = None,
        label_position: int = 0,
        observed_training: bool = True,
        p_uncond: float = 0.2,
        n_factors: int = 0,
        gene_groups: np.ndarray | None = None,
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
        is_log = torch.zeros(len(self.location)) if continuous_is_log is None else torch.as_tensor(continuous_is_log)
        self.register_buffer("is_log", is_log.bool(), persistent=False)
        self.register_buffer("expressed", None if expressed is None else torch.as_tensor(expressed, dtype=torch.bool))
        self.register_buffer("group_members", _members(gene_groups), persistent=False)
        head = get_head(head)
        network = get_backbone(backbone)(len(gene_means), head.n_outputs, **(backbone_kwargs or {}))
        self.denoiser = CountsDenoiser(
            network,
            torch.as_tensor(gene_means),
            self.schedule,
            head,
            n_categories,
            len(self.location),
            n_factors=n_factors,
            gene_max=gene_max,
            gene_groups=None if self.group_members is None else gene_groups,
        ).float()  # as the counts are read, whatever torch's default is

    @property
    def n_genes(self) -> int:
        """Number of genes."""
        return len(self.denoiser.gene_means)

    @property
    def has_covariates(self) -> bool:
        """Whether the model is conditioned on anything."""
        return len(self.n_categories) + len(self.location) > 0

    @property
    def knows_null(self) -> bool:
        """Whether training has cells without covariates: the null state can be used."""
        return self.p_uncond > 0 or not self.has_covariates

    @property
    def is_frozen(self) -> bool:
        """Whether a part of the network is not trained, as that of a model that learns new categories only."""
        return not all(weights.requires_grad for weights in self.parameters())

    # What a minibatch says ------------------------------------------------------------------------------------------

    def read(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Counts, which of them are missing, and covariates of a minibatch.

        NaN, a False in the mask (of each gene, or of each group of genes) and, with ``zeros="missing"``, a zero of a gene that the cell's type expresses
        (any type, if the cell's own is unknown) all mean that the count is missing.
        """
        # Not by scvi-tools' decorator, which goes through all weights to find where they are.
        tensors = {name: values.to(self.location.device) for name, values in tensors.items()}
        x = tensors[REGISTRY_KEYS.X_KEY].float()
        n = len(x)
        categories = tensors.get(REGISTRY_KEYS.CAT_COVS_KEY)
        categories = x.new_zeros(n, 0, dtype=torch.long) if categories is None else categories.long()
        continuous = tensors.get(REGISTRY_KEYS.CONT_COVS_KEY)
        continuous = x.new_zeros(n, 0) if continuous is None else continuous
        continuous = self.standardised(continuous)
        expressed = None
        if self.expressed is not None:
            # The code after the last one is a type that was not there in training.
            expressed = torch.cat([self.expressed, self.expressed.any(0, keepdim=True)])
            expressed = expressed[categories[:, self.label_position]]
        observed = tensors.get(OBSERVED_KEY)
        if observed is not None and self.group_members is not None and observed.shape[1] == len(self.group_members):
            observed = observed.to(x.dtype) @ self.group_members.to(x.dtype)  # of whole groups, not of each gene
        cells = {"categories": categories, "continuous": continuous}
        if observed is None and expressed is None and host_sees(x) and not bool(x.sum().isnan()):
            return {
                "x0": x,
                "missing": torch.zeros_like(x, dtype=torch.bool),
            } | cells  # a sum takes less than looking at each
        missing = is_missing(x, observed, expressed)
        return {"x0": x.masked_fill(missing, 0), "missing": missing} | cells

    def standardised(self, continuous: Tensor) -> Tensor:
        """Continuous covariates (..., covariates), logs of size factors, in standard deviations from their mean."""
        values = continuous.double()
        values = torch.where(self.is_log, values.log(), values)
        return ((values - self.location) / self.scale).float()

    def denoise_with(
        self,
        categories: Tensor,
        continuous: Tensor,
        kept: Tensor | None = None,
        x: Tensor | None = None,
        status: Tensor | None = None,
        only_mean: bool = False,
    ) -> Denoiser:
        """The denoiser for these cells' covariates, as :func:`~sccountsdiff.diffusion.guide` wants it.

        A cell with a category that was not there in training, or with NaN, is in the null state: training drops all
        covariates of a cell or none. ``kept`` is the share of the molecules of training cells that was left when they were
        thinned. With ``x`` and ``status``, entries that are observed there are taken to be the same in all calls, and what
        follows from them is computed once. With ``only_mean``, the law is no more than its mean.
        """
        look = self._look_with(categories, continuous, kept, x, status, only_mean)
        read = self.denoiser.head.expect if only_mean else self.denoiser.head.law

        def denoise(x: Tensor, status: Tensor, t: Tensor, null: Tensor) -> Prediction:
            outputs, given = look(x, status, t, null)
            with torch.autocast(x.device.type, enabled=False):
                return read(outputs, given)

        return denoise

    def _look_with(
        self,
        categories: Tensor,
        continuous: Tensor,
        kept: Tensor | None = None,
        x: Tensor | None = None,
        status: Tensor | None = None,
        only_mean: bool = False,
    ) -> Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, HeadInput]]:
        """As :meth:`denoise_with`, but what the head is given instead of what it makes of that."""
        unseen = (categories >= self.n_categories).any(1) | continuous.isnan().any(1)
        categories = categories.masked_fill(unseen[:, None], 0)
        continuous = continuous.masked_fill(unseen[:, None], 0)
        context = self.denoiser.context(categories, continuous, x, status)

        def look(x: Tensor, status: Tensor, t: Tensor, null: Tensor) -> tuple[Tensor, HeadInput]:
            copies = len(x) // len(context)  # 2 under guidance
            null = null | unseen.repeat(copies)
            return self.denoiser.look(x, status, t.to(x.dtype), context.repeat(copies), null, kept, only_mean)

        return look

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
    ) -> dict[str, NoisedCounts | Tensor]:
        """Forward process: draw a time, what is observed, and the noised state (Algorithm 1)."""
        noised = draw_noised(
            x0,
            self.schedule,
            missing=missing,
            observed_training=self.observed_training,
            thin_cells=self.observed_training and self.denoiser.head.thins_cells,
            directions=self.denoiser.gene_directions,
            groups=self.group_members,
            generator=generator,
        )
        null = torch.rand(len(x0), generator=generator, device=x0.device) < self.p_uncond
        return {"noised": noised, "null": null, "categories": categories, "continuous": continuous}

    def _get_generative_input(self, tensors, inference_outputs: dict, **kwargs) -> dict:
        return inference_outputs

    def generative(
        self, noised: NoisedCounts, null: Tensor, categories: Tensor, continuous: Tensor
    ) -> dict[str, Tensor | HeadInput]:
        """What the network says of the remaining counts; the head makes a law of it (:meth:`Head.law`)."""
        look = self._look_with(categories, continuous, noised.kept)
        outputs, given = look(noised.xt, noised.status, noised.t, null)
        return {"outputs": outputs, "given": given}

    def loss(self, tensors, inference_outputs: dict, generative_outputs: dict) -> LossOutput:
        """Eq. 6, or the loss of another head, over the noised entries."""
        noised = inference_outputs["noised"]
        _, is_noised = indicators(noised.status)
        n_noised = is_noised.sum().clamp_min(1)
        with torch.autocast(noised.y.device.type, enabled=False):
            total = self.denoiser.head.total_loss(
                noised.y, **generative_outputs, weight=is_noised * noised.weight[:, None]
            )
        return LossOutput(loss=total / n_noised, n_obs_minibatch=len(noised.y))

    def sample(self, *args, **kwargs):
        """Draws are made by the model's ``impute`` and ``generate``; a minibatch alone does not say what to fill in."""
        raise NotImplementedError("Use the model's `impute`, `generate` or `posterior_predictive_sample`.")


def _members(groups: np.ndarray | None) -> Tensor | None:
    """Which genes are in each group (groups, genes); ``None`` if there is only one."""
    numbers = np.unique([0] if groups is None else groups)
    return None if len(numbers) == 1 else torch.as_tensor(numbers[:, None] == groups)
