"""Forest-Diffusion: Gaussian diffusion whose score is learned by gradient-boosted trees."""

from __future__ import annotations

import numpy as np
import pandas as pd

from sccountsdiff.benchmark.baselines.base import Baseline, Cells, register_baseline, sampling
from sccountsdiff.benchmark.baselines.covariate_codes import kinds
from sccountsdiff.checks import whole_number
from sccountsdiff.seeding import global_seed

MAX_HOURS = 1.0
"""Trainings that are expected to take longer are refused unless they are asked for."""

SECONDS_PER_NODE, SECONDS_PER_ROW = 1.7e-6, 3e-8
"""Cost of a tree for each of its features: by the nodes of its last level, and by training rows; on one free core."""


@register_baseline(
    "forest_diffusion", group="generative", draws=True, uses_covariates=True, uses_mask=True, requires=("forest",)
)
class ForestDiffusion(Baseline):
    """Forest-Diffusion: Gaussian diffusion with gradient-boosted trees, conditioned by RePaint.

    Forest-Diffusion (Jolicoeur-Martineau, Fatras and Kachman 2024) scales each column of a table to [-1, 1], adds Gaussian
    noise at ``n_t`` levels to ``n_copies`` copies of it, and at each level fits boosted trees that predict the noise of each
    column. A cell is imputed by walking back from pure noise; observed entries are set to their noised values at each
    level, and each stretch of the walk is repeated ``n_resamples`` times (RePaint). This class calls the authors' package
    of the same name. One sample is one draw, more samples are that many; draws are whole numbers in the range that a gene
    had in training. Categorical covariates enter as columns of zeros and ones, those of a float type as they are.

    Trees are fitted for every level, round and gene, and each looks at all genes: time grows with the square of the number
    of genes, and is several times as long if training cells have gaps. A training that is expected to take more than an
    hour on one core is refused before it starts.

    The package asks for the full build of xgboost, which brings CUDA libraries along, but runs with xgboost-cpu as well: install
    it without what it asks for (``pip install --no-deps ForestDiffusion``), and lightgbm and catboost beside it.

    Differs from the original: smaller defaults (the package's are ``n_t=50``, ``n_copies=100`` and ``n_trees=100``; the
    paper used 20 levels); the model is fitted to training cells and imputes others, whereas the package's own examples
    and the paper impute the table that was fitted; noised copies are made once (``n_batch=0``), not on the fly, as trees
    then predict the noise of the lowest levels better.

    Parameters
    ----------
    n_t
        Noise levels, and steps of the walk.
    n_copies
        Noised copies of each training cell (``duplicate_K`` of the package).
    n_trees, max_depth
        Boosting rounds at each level, and depth of the trees.
    n_resamples
        Number of times that each stretch of the walk is gone.
    jump_share
        Length of a stretch, as a share of the levels.
    n_jobs
        Processes that fit levels side by side; -1 for all cores.
    allow_slow
        Start trainings however long they may take.

    Examples
    --------
    >>> method = ForestDiffusion(n_t=10, n_copies=5)
    >>> [round(method.expected_hours(n_cells=3000, n_genes=n), 1) for n in (20, 300)]
    [0.0, 8.3]
    """

    n_t: int = 20
    n_copies: int = 10
    n_trees: int = 50
    max_depth: int = 7
    n_resamples: int = sampling(5)
    jump_share: float = sampling(0.1)
    n_jobs: int = 1
    allow_slow: bool = False

    def __post_init__(self) -> None:
        for setting, least in {"n_t": 2, "n_copies": 1, "n_trees": 1, "max_depth": 1, "n_resamples": 1}.items():
            whole_number(setting, getattr(self, setting), least)
        if not 0 < self.jump_share <= 1:
            raise ValueError(f"jump_share must be above 0 and at most 1, found {self.jump_share}.")

    def expected_hours(self, n_cells: int, n_genes: int, n_covariates: int = 0) -> float:
        """Rough time of a training on one core.

        Parameters
        ----------
        n_cells, n_genes
            Size of the training data.
        n_covariates
            Columns that covariates take up.

        Examples
        --------
        >>> round(ForestDiffusion().expected_hours(n_cells=1000, n_genes=20), 2)
        0.06
        """
        seconds_per_feature = SECONDS_PER_NODE * 2**self.max_depth + SECONDS_PER_ROW * self.n_copies * n_cells
        return self._trees(n_genes) * (n_genes + n_covariates) * seconds_per_feature / 3600

    def _trees(self, n_genes: int) -> int:
        return self.n_t * self.n_trees * n_genes

    def _fit(self, cells: Cells, seed: int) -> None:
        self._covariate_columns = _coded(cells.covariates).columns
        n_genes = cells.counts.shape[1]
        hours = self.expected_hours(len(cells), n_genes, len(self._covariate_columns))
        if hours > MAX_HOURS and not self.allow_slow:
            raise ValueError(
                f"Forest-Diffusion would fit {self._trees(n_genes):,} trees to {n_genes} genes, which takes about {hours:.0f} "
                "hours on one core; choose fewer genes (time grows with their square), lower n_t, n_trees or n_copies, or "
                "set allow_slow=True."
            )
        from ForestDiffusion import ForestDiffusionModel

        with global_seed(seed), np.errstate(invalid="ignore"):  # the package takes roots that it does not use
            self.model = ForestDiffusionModel(
                _with_gaps(cells),
                X_covs=self._coded_as_in_training(cells.covariates),
                n_t=self.n_t,
                model="xgboost",
                diffusion_type="vp",  # the only one that can impute
                max_depth=self.max_depth,
                n_estimators=self.n_trees,
                duplicate_K=self.n_copies,
                int_indexes=list(range(n_genes)),
                n_jobs=self.n_jobs,
                n_batch=0,
                seed=seed,
            )

    def _impute(self, cells: Cells, sites: np.ndarray, n_samples: int, seed: int) -> np.ndarray:
        with global_seed(seed), np.errstate(invalid="ignore"):
            return self.model.impute(
                k=n_samples,
                X=self.model.scaler.transform(_with_gaps(cells)),  # the package expects it scaled, and scales back
                X_covs=self._coded_as_in_training(cells.covariates),
                repaint=True,
                r=self.n_resamples,
                j=self.jump_share,
            )

    def _coded_as_in_training(self, covariates: pd.DataFrame) -> np.ndarray | None:
        """Covariates in the columns of training; a category that was not seen there is 0 in all of them."""
        if not len(self._covariate_columns):
            return None
        return _coded(covariates).reindex(columns=self._covariate_columns, fill_value=0).to_numpy(dtype=np.float64)


def _with_gaps(cells: Cells) -> np.ndarray:
    """Counts with NaN for what is not observed, which is how the package marks missing entries."""
    return np.where(cells.observed, cells.counts.astype(np.float64), np.nan)


def _coded(covariates: pd.DataFrame) -> pd.DataFrame:
    """Categories as columns of zeros and ones, floats as they are."""
    if covariates.empty:
        return covariates
    categorical, _ = kinds(covariates)
    return pd.get_dummies(covariates.astype(dict.fromkeys(categorical, str)), columns=categorical, dtype=np.float64)
