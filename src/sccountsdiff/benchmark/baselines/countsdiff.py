"""CountsDiff itself, in the settings that are compared."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Literal  # noqa: F401  annotations of the settings of sampling name it

import numpy as np
import pandas as pd
from anndata import AnnData
from torch import Tensor, nn  # noqa: F401  the same

from sccountsdiff.benchmark.baselines.base import Baseline, Cells, register_baseline, sampling
from sccountsdiff.benchmark.baselines.covariate_codes import kinds
from sccountsdiff.benchmark.quiet import quiet
from sccountsdiff.diffusion import Attrition  # noqa: F401  the same
from sccountsdiff.model import CountsDiffImputer
from sccountsdiff.model.settings import setting_fields
from sccountsdiff.seeding import global_seed

SETTINGS = {setting.name: setting for setting in setting_fields()}
"""The settings of sampling, each of which is a setting of the method."""

NETWORK_SETTINGS = ("backbone", "schedule", "head", "observed_training")
"""The settings of network and training, which are arguments of the model."""

TOLERANT = {"unseen_to_null": True, "silent": True}
"""Cells with a category that was not seen in training are answered without covariates."""


def with_sampling_settings(kind: type[Baseline]) -> type[Baseline]:
    """Class decorator, below ``register_baseline``: adds the settings of sampling as fields, and names them in the docstring."""
    for name, setting in SETTINGS.items():
        kind.__annotations__[name] = setting.annotation
        setattr(kind, name, sampling(setting.default))
    kind.__doc__ = (kind.__doc__ or "").replace("**sampling", ", ".join(SETTINGS))
    return kind


@register_baseline("countsdiff", group="generative", draws=True, denoises=True, uses_covariates=True, uses_mask=True)
@with_sampling_settings
class CountsDiff(Baseline):
    """CountsDiff: integer draws by diffusion on the natural numbers.

    One sample is one draw, more samples are that many. Covariates of a float type enter as continuous, all others as
    categorical; a cell with a category that was not seen in training is imputed without covariates.

    To denoise, one pass of the network gives the molecules that are not seen, whatever the settings of sampling other than
    ``guidance``, and ``final="log_mean"``, which asks for the guess that is best on the scale of log counts.

    Parameters
    ----------
    max_epochs
        Epochs at most; by default those of the model for the number of cells.
    backbone, schedule, head, observed_training
        Network and training, see :class:`~sccountsdiff.CountsDiffImputer`.
    model_kwargs
        Further arguments of :class:`~sccountsdiff.CountsDiffImputer`.
    train_kwargs
        Further arguments of :meth:`CountsDiffImputer.train() <sccountsdiff.CountsDiffImputer>`.
    **sampling, batch_size
        Sampling, see :meth:`CountsDiffImputer.impute() <sccountsdiff.CountsDiffImputer>`.

    Examples
    --------
    >>> import numpy as np
    >>> from anndata import AnnData
    >>> rng = np.random.default_rng(0)
    >>> cells = AnnData(rng.poisson(2, (40, 6)).astype("float32"))
    >>> sites = rng.random(cells.shape) < 0.5
    >>> method = CountsDiff(max_epochs=1, n_steps=2, model_kwargs={"n_hidden": 8}).fit(cells)
    >>> method.impute(cells, sites, n_samples=3).shape
    (3, 40, 6)
    """

    max_epochs: int | None = None
    backbone: str = "mlp"
    schedule: str = "cosine"
    head: str = "nb_mixture"
    observed_training: bool = True
    model_kwargs: dict[str, Any] = field(default_factory=dict)
    train_kwargs: dict[str, Any] = field(default_factory=dict)
    batch_size: int = sampling(128)

    def _fit(self, cells: Cells, seed: int) -> None:
        with global_seed(seed), quiet():
            self.model = self._untrained_model(cells)
            self.model.train(self.max_epochs, **{"enable_progress_bar": False, "logger": False, **self.train_kwargs})

    def untrained(self, cells: Cells) -> nn.Module:
        """The network for these training cells as training starts from it."""
        with quiet():
            return self._untrained_model(cells).module

    def _untrained_model(self, cells: Cells) -> CountsDiffImputer:
        self._categorical, continuous = kinds(cells.covariates)
        # Cells are read as complete if all of them are, whatever those to impute are like.
        self._has_gaps = not cells.observed.all()
        adata = self._adata(cells, cells.observed)
        CountsDiffImputer.setup_anndata(
            adata,
            categorical_covariate_keys=self._categorical,
            continuous_covariate_keys=continuous,
            mask_layer="observed" if self._has_gaps else None,
        )
        settings = {"gene_groups": self.modalities, **self._settings(NETWORK_SETTINGS), **self.model_kwargs}
        return CountsDiffImputer(adata, **settings)

    def _impute(self, cells: Cells, sites: np.ndarray, n_samples: int, seed: int) -> np.ndarray:
        if not self._has_gaps and not (cells.observed | sites).all():
            raise ValueError("Some entries are missing, but none were in training; give observed to fit() as well.")
        adata = self._adata(cells, cells.observed | sites)
        settings = {"n_samples": n_samples, "seed": seed, **self._settings(("batch_size", *SETTINGS)), **TOLERANT}
        with quiet():
            draws = self.model.impute(adata, sites=sites, return_mean=False, key_added=None, **settings)
        return draws if n_samples > 1 else draws[0]

    def _denoise(self, cells: Cells, share: float, seed: int) -> np.ndarray:
        adata, settings = self._adata(cells, cells.observed), self._settings(("batch_size", "guidance"))
        with quiet():
            final = "log_mean" if self.final == "log_mean" else "mean"
            hidden = self.model.denoise(adata, depth=1 / share, unseen=True, final=final, **settings, **TOLERANT)
        return hidden * (share / (1 - share))

    def _adata(self, cells: Cells, present: np.ndarray) -> AnnData:
        """Cells as the model reads them; what is not ``present`` is missing and not asked for."""
        obs = cells.covariates.astype(dict.fromkeys(self._categorical, str))
        layers = {"observed": present} if self._has_gaps else None
        return AnnData(cells.counts, obs=obs, var=pd.DataFrame(index=self.genes), layers=layers)


@register_baseline("countsdiff_mean", draws=False)
class CountsDiffMean(CountsDiff):
    """CountsDiff: the conditional mean in one pass of the network, without sampling.

    Examples
    --------
    It shares the trained model of :class:`CountsDiff`:

    >>> CountsDiffMean().training_key == CountsDiff().training_key
    True
    """

    n_steps: int = sampling(1)
    final: str = sampling("mean")


@register_baseline("countsdiff_log_mean", draws=False)
class CountsDiffLogMean(CountsDiff):
    """CountsDiff: the guess with the least expected error of log counts, in one pass of the network, without sampling.

    Examples
    --------
    It shares the trained model of :class:`CountsDiff`:

    >>> CountsDiffLogMean().training_key == CountsDiff().training_key
    True
    """

    final: str = sampling("log_mean")


@register_baseline("countsdiff_paper")
class CountsDiffPaper(CountsDiff):
    """CountsDiff as in the paper: gene-token transformer, not scaled by depth, RePaint with noised observed counts.

    Differs from the original, if trained with the defaults: the budget is that of :class:`CountsDiff`, not 100,000 steps;
    ``sccountsdiff.benchmark.paper`` has the paper's. Settings are those of :class:`CountsDiff`, with other defaults.

    Examples
    --------
    >>> CountsDiffPaper().observed_training
    False
    """

    backbone: str = "transformer"
    head: str = "softplus"
    observed_training: bool = False
    n_steps: int = sampling(19)
    n_resamples: int = sampling(3)


@register_baseline("blackout", uses_covariates=False)
class Blackout(CountsDiffPaper):
    """Blackout diffusion: the paper's network on the discrete Fisher schedule, no attrition, no guidance.

    Blackout diffusion (Santos et al. 2023) is the pure-death process that CountsDiff generalises: counts die out on 1,000
    time points that are spaced evenly in Fisher information, a network predicts how many are missing, and the walk back
    adds them. Without guidance it has no use for covariates and is not shown them. Settings are those of
    :class:`CountsDiff`, with other defaults.

    Differs from the original, which generates images with a U-Net: imputes counts by RePaint, with the network and the
    sampling of :class:`CountsDiffPaper`, that is 19 of the 1,000 steps and random rounding where the original draws Poisson
    numbers. Eq. 6 gives the last steps almost no weight on this schedule, and the softplus head does not vanish by itself:
    a network on which they are not learnt in passing adds counts there that nothing has taught it (:doc:`/simulated`,
    :doc:`/reproducing`). With ``head="poisson"`` it cannot; the weight of the likelihood
    (:func:`~sccountsdiff.diffusion.nll_weight`) teaches it.

    Examples
    --------
    >>> Blackout().schedule
    'blackout'
    """

    schedule: str = "blackout"
    guidance: float = sampling(0.0)
    attrition: float = sampling(0.0)
