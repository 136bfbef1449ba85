"""CountsDiff itself, in the settings that are compared."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
from anndata import AnnData

from sccountsdiff.benchmark._quiet import quiet
from sccountsdiff.benchmark._seeding import global_seed
from sccountsdiff.benchmark.baselines.base import Baseline, Cells, register_baseline
from sccountsdiff.model import CountsDiffImputer


@register_baseline
@dataclass(eq=False)
class CountsDiff(Baseline):
    """CountsDiff: integer draws by diffusion on the natural numbers.

    One sample is one draw, more samples are that many. Covariates of a float type enter as continuous, all others as
    categorical; a cell with a category that was not seen in training is imputed without covariates.

    Parameters
    ----------
    max_epochs
        Epochs at most; by default what the model finds fit for the number of cells.
    backbone, schedule, head, observed_training
        Network and training, see :class:`~sccountsdiff.CountsDiffImputer`.
    model_kwargs
        Further arguments of :class:`~sccountsdiff.CountsDiffImputer`.
    train_kwargs
        Further arguments of :meth:`CountsDiffImputer.train() <sccountsdiff.CountsDiffImputer>`.
    n_steps, known, guidance, attrition, rounding, final, n_resamples, batch_size
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
    head: str = "nb"
    observed_training: bool = True
    model_kwargs: dict[str, Any] = field(default_factory=dict)
    train_kwargs: dict[str, Any] = field(default_factory=dict)
    n_steps: int = field(default=15, metadata={"sampling": True})
    known: str = field(default="clean", metadata={"sampling": True})
    guidance: float = field(default=1.0, metadata={"sampling": True})
    attrition: float = field(default=0.005, metadata={"sampling": True})
    rounding: str | None = field(default=None, metadata={"sampling": True})
    final: str = field(default="sample", metadata={"sampling": True})
    n_resamples: int = field(default=1, metadata={"sampling": True})
    batch_size: int = field(default=128, metadata={"sampling": True})

    name: ClassVar[str] = "countsdiff"
    group: ClassVar[Literal["naive", "specialised", "generative"]] = "generative"
    draws: ClassVar[bool] = True
    uses_covariates: ClassVar[bool] = True
    uses_mask: ClassVar[bool] = True

    def _fit(self, cells: Cells, seed: int) -> None:
        covariates = cells.covariates
        self._categorical = [key for key in covariates if not pd.api.types.is_float_dtype(covariates[key])]
        # Cells are read as complete if all of them are, whatever those to impute are like.
        self._has_gaps = not cells.observed.all()
        adata = self._adata(cells, cells.observed)
        with global_seed(seed), quiet():
            CountsDiffImputer.setup_anndata(
                adata,
                categorical_covariate_keys=self._categorical,
                continuous_covariate_keys=[key for key in covariates if key not in self._categorical],
                mask_layer="observed" if self._has_gaps else None,
            )
            self.model = CountsDiffImputer(
                adata,
                backbone=self.backbone,
                schedule=self.schedule,
                head=self.head,
                observed_training=self.observed_training,
                **self.model_kwargs,
            )
            self.model.train(
                self.max_epochs,
                **{"enable_progress_bar": False, "logger": False, **self.train_kwargs},
            )

    def _impute(self, cells: Cells, sites: np.ndarray, n_samples: int, seed: int) -> np.ndarray:
        if not self._has_gaps and not (cells.observed | sites).all():
            raise ValueError("Some entries are not believed, but all were in training; give believed to fit() as well.")
        with quiet():
            draws = self.model.impute(
                self._adata(cells, cells.observed | sites),
                sites=sites,
                n_samples=n_samples,
                n_steps=self.n_steps,
                known=self.known,
                guidance=self.guidance,
                attrition=self.attrition,
                rounding=self.rounding,
                final=self.final,
                n_resamples=self.n_resamples,
                return_mean=False,
                key_added=None,
                unseen_to_null=True,
                batch_size=self.batch_size,
                seed=seed,
                silent=True,
            )
        return draws if n_samples > 1 else draws[0]

    def _adata(self, cells: Cells, present: np.ndarray) -> AnnData:
        """Cells as the model reads them; what is not ``present`` is neither known nor asked for."""
        obs = cells.covariates.astype(dict.fromkeys(self._categorical, str))
        layers = {"observed": present} if self._has_gaps else None
        return AnnData(cells.counts, obs=obs, var=pd.DataFrame(index=self.genes), layers=layers)


@register_baseline
@dataclass(eq=False)
class CountsDiffMean(CountsDiff):
    """CountsDiff: the conditional mean in one pass of the network, without sampling.

    Examples
    --------
    It shares the trained model of :class:`CountsDiff`:

    >>> CountsDiffMean().training_key == CountsDiff().training_key
    True
    """

    n_steps: int = field(default=1, metadata={"sampling": True})
    final: str = field(default="mean", metadata={"sampling": True})

    name: ClassVar[str] = "countsdiff_mean"
    draws: ClassVar[bool] = False


@register_baseline
@dataclass(eq=False)
class CountsDiffPaper(CountsDiff):
    """CountsDiff as in the paper: gene-token transformer, no depth, RePaint with noised observed counts.

    Examples
    --------
    >>> CountsDiffPaper().known
    'noised'
    """

    backbone: str = "transformer"
    head: str = "softplus"
    observed_training: bool = False
    n_steps: int = field(default=19, metadata={"sampling": True})
    known: str = field(default="noised", metadata={"sampling": True})
    n_resamples: int = field(default=3, metadata={"sampling": True})

    name: ClassVar[str] = "countsdiff_paper"


@register_baseline
@dataclass(eq=False)
class Blackout(CountsDiffPaper):
    """Blackout diffusion: the paper's network on the discrete Fisher schedule, no attrition, no guidance.

    Without guidance it has no use for covariates and is not shown them.

    Examples
    --------
    >>> Blackout().schedule
    'blackout'
    """

    schedule: str = "blackout"
    guidance: float = field(default=0.0, metadata={"sampling": True})
    attrition: float = field(default=0.0, metadata={"sampling": True})

    name: ClassVar[str] = "blackout"
    uses_covariates: ClassVar[bool] = False
