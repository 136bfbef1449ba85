"""scVI: a variational auto-encoder with a negative-binomial likelihood."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import field
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData

from sccountsdiff.benchmark.baselines.base import Baseline, Cells, register_baseline, sampling
from sccountsdiff.benchmark.baselines.covariate_codes import CovariateCoder
from sccountsdiff.benchmark.baselines.depth import PSEUDO_COUNT, depth_factor
from sccountsdiff.benchmark.metrics.inputs import blocks
from sccountsdiff.benchmark.quiet import quiet
from sccountsdiff.benchmark.scvi_training import fit_scvi
from sccountsdiff.seeding import global_seed

logger = logging.getLogger("sccountsdiff")


@register_baseline("scvi", group="specialised", draws=True, denoises=True, uses_covariates=True)
class SCVIBaseline(Baseline):
    """scVI (Lopez et al. 2018) of scvi-tools, its proportions brought to the observed depth of each cell.

    Trained on the training cells with early stopping. To impute, hidden entries are 0 for the encoder; each draw of the
    latent cell gives proportions, which are multiplied by the observed total of the cell over the proportion of its
    observed genes. One sample is the mean over ``n_posterior`` such draws; more samples are negative-binomial draws, each
    from its own latent cell.

    Covariates of a float type enter as continuous, as standard scores; all others as categorical. A category that was not
    seen in training is replaced by the most common one.

    Parameters
    ----------
    n_latent, n_hidden, n_layers
        Size of the network.
    max_epochs
        Epochs at most; by default those of scvi-tools for the number of cells.
    n_posterior
        Number of draws of the latent cell behind the mean.
    n_rounds
        Number of times that cells are encoded. In the first round hidden entries are 0; in each further one they are what
        the round before expects them to be.
    pseudo_count
        Added to observed and expected totals of a cell.
    batch_size
        Cells per step in training.
    train_kwargs
        Further arguments of :meth:`scvi.model.SCVI.train`.

    Examples
    --------
    >>> import numpy as np
    >>> from anndata import AnnData
    >>> rng = np.random.default_rng(0)
    >>> cells = AnnData(rng.poisson(2, (40, 6)).astype("float32"))
    >>> sites = rng.random(cells.shape) < 0.5
    >>> SCVIBaseline(n_hidden=8, max_epochs=1).fit(cells).impute(cells, sites, n_samples=3).shape
    (3, 40, 6)
    """

    n_latent: int = 10
    n_hidden: int = 128
    n_layers: int = 1
    max_epochs: int | None = None
    n_posterior: int = sampling(10)
    n_rounds: int = sampling(1)
    pseudo_count: float = sampling(PSEUDO_COUNT)
    batch_size: int = 128
    train_kwargs: dict[str, Any] = field(default_factory=dict)

    def _fit(self, cells: Cells, seed: int) -> None:
        cells = cells[cells.counts.sum(axis=1) > 0]  # an empty cell has no log depth
        if not len(cells):
            raise ValueError("All training cells are empty; scVI needs cells with counts.")
        counts, covariates = cells.counts, cells.covariates
        self._mean_depth = counts.sum(axis=1, dtype=np.float64).mean()
        self.coder = CovariateCoder.fit(covariates)
        self._most_common = {key: covariates[key].astype(str).value_counts().index[0] for key in self.coder.categories}
        self.model = fit_scvi(
            self._adata(counts, covariates),
            categorical_covariate_keys=list(self.coder.categories),
            continuous_covariate_keys=list(self.coder.moments),
            model_kwargs=self._settings(("n_latent", "n_hidden", "n_layers")),
            train_kwargs={"max_epochs": self.max_epochs, **self.train_kwargs},
            batch_size=self.batch_size,
            seed=seed,
        )

    def _impute(self, cells: Cells, sites: np.ndarray, n_samples: int, seed: int) -> np.ndarray:
        counts, observed = cells.counts, cells.observed
        adata = self._adata(counts, cells.covariates)
        with global_seed(seed), quiet():
            for _ in range(self.n_rounds - 1):
                adata.X = np.where(observed, counts, self._mean(adata, counts, observed))
            if n_samples == 1:
                return self._mean(adata, counts, observed)
            theta = self.model.module.px_r.detach().exp().cpu().numpy()
            rng = np.random.default_rng(seed)
            means = self._expected(adata, counts, observed, n_samples)
            draws = [rng.poisson(rng.gamma(theta, m / theta)).astype(np.float32) for m in means]
            return np.concatenate(draws, axis=1)

    def _mean(self, adata: AnnData, counts: np.ndarray, observed: np.ndarray) -> np.ndarray:
        blocks_of_means = self._expected(adata, counts, observed, self.n_posterior)
        return np.concatenate([means.mean(axis=0) for means in blocks_of_means])

    def _expected(self, adata: AnnData, counts: np.ndarray, observed: np.ndarray, n_draws: int) -> Iterator[np.ndarray]:
        """Expected counts at the depth of each cell, (draws of the latent cell, cells, genes), for blocks of cells."""
        for block in blocks(len(counts), 256):
            cells = np.arange(block.start, block.stop)
            proportions = self.model.get_normalized_expression(
                adata, cells, n_samples=n_draws, library_size=1, return_mean=False, return_numpy=True, silent=True
            )
            means = self._mean_depth * proportions.reshape(n_draws, -1, counts.shape[1])
            depths = [depth_factor(counts[block], observed[block], mean, self.pseudo_count) for mean in means]
            yield means * np.stack(depths)

    def _adata(self, counts: np.ndarray, covariates: pd.DataFrame) -> AnnData:
        obs = covariates.copy()
        obs[list(self.coder.moments)] = self.coder.scores(covariates)
        for key, categories in self.coder.categories.items():
            values = obs[key].astype(str)
            unseen = ~values.isin(categories)
            if unseen.any():
                logger.warning("%d cells have a %s that scVI did not see in training.", unseen.sum(), key)
            obs[key] = values.mask(unseen, self._most_common[key]).astype("category")
        return AnnData(counts.astype(np.float32), obs=obs, var=pd.DataFrame(index=self.genes))


@register_baseline("scvi_refined")
class SCVIRefined(SCVIBaseline):
    """scVI that encodes each cell five times, with its own expectations in place of the hidden entries.

    It shares the trained model of :class:`SCVIBaseline`. A cell with zeros in place of half of its entries is like no cell
    that the encoder was trained on. Feeding the expected counts back brings it closer to one. Where nothing is hidden, as
    in denoising, the two are the same.

    Examples
    --------
    >>> SCVIRefined().n_rounds
    5
    """

    n_rounds: int = sampling(5)


@register_baseline("scvi_draw", draws=False, denoises=False)
class SCVIDraw(SCVIRefined):
    """scVI: one negative-binomial draw instead of the mean, to be compared with the draws of generative methods.

    It shares the trained model of :class:`SCVIBaseline` and encodes as :class:`SCVIRefined`.

    Examples
    --------
    >>> SCVIDraw().training_key == SCVIBaseline().training_key
    True
    """

    def _impute(self, cells: Cells, sites: np.ndarray, n_samples: int, seed: int) -> np.ndarray:
        return super()._impute(cells, sites, 2, seed)[0]
