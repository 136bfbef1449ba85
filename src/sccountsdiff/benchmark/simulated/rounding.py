"""The effect of rounding on the reverse process with the exact denoiser, which leaves no other error (App. E.1)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
import pandas as pd
import torch
from scipy import stats
from torch import Tensor

from sccountsdiff.benchmark.simulated.countsdiff import draw_counts
from sccountsdiff.diffusion import Fisher, Prediction
from sccountsdiff.diffusion.rounding import MEAN_ROUNDINGS

STUDIED = (*MEAN_ROUNDINGS, "nb")
"""Roundings that can be used with the exact denoiser of negative-binomial counts."""


@dataclass(frozen=True)
class Regime:
    """A negative binomial to be sampled.

    Examples
    --------
    >>> Regime(mean=0.3, dispersion=1.0).pmf(2).round(4).tolist()  # the first is 1 / (1 + 0.3)
    [0.7692, 0.1775]
    """

    mean: float
    dispersion: float

    def __post_init__(self):
        if not (self.mean > 0 and self.dispersion > 0):
            raise ValueError(f"A regime needs a positive mean and dispersion, not {self}.")

    @property
    def variance(self) -> float:
        """``mean + mean^2 / dispersion``."""
        return self.mean + self.mean**2 / self.dispersion

    @property
    def law(self) -> stats.rv_discrete:
        """The negative binomial of scipy."""
        return stats.nbinom(self.dispersion, self.dispersion / (self.dispersion + self.mean))

    def pmf(self, n_counts: int) -> np.ndarray:
        """Probabilities of the counts below ``n_counts``."""
        return self.law.pmf(np.arange(n_counts))

    def denoise(self, xt: Tensor, t: Tensor) -> Prediction:
        """The exact law of the counts still to come.

        The rate behind the counts is gamma; given ``x_t`` it is ``Gamma(theta + x_t, theta / mean + p)``, and the rest
        of the counts is Poisson with the share ``1 - p`` of that rate: a negative binomial again.
        """
        p = Fisher().survival(t).to(xt)[:, None]
        shape = self.dispersion + xt
        log_mean = torch.log1p(-p) + shape.log() - torch.log(self.dispersion / self.mean + p)
        return Prediction(log_mean, shape.log())


REGIMES = {"low counts": Regime(mean=0.3, dispersion=1.0), "higher counts": Regime(mean=15.0, dispersion=3.0)}


def sample_rounded(regime: Regime, rounding: str, n: int, n_steps: int, seed: int = 0) -> np.ndarray:
    """Counts drawn with the exact denoiser and one kind of rounding.

    Examples
    --------
    Means below one half are rounded to 0 in every step:

    >>> int(sample_rounded(REGIMES["low counts"], "nearest", 100, n_steps=20).sum())
    0
    """
    empty = torch.zeros(n, 1, dtype=torch.float64)
    generator = torch.Generator(device=empty.device).manual_seed(seed)
    return draw_counts(regime.denoise, empty, n_steps, rounding, generator)[:, 0].cpu().numpy()


def rounding_study(n: int = 20_000, n_steps: tuple[int, ...] = (20, 200), seed: int = 0) -> tuple[pd.DataFrame, dict]:
    """Compare the roundings with the law they should give.

    Parameters
    ----------
    n
        Samples of each.
    n_steps
        Numbers of reverse steps.
    seed
        Seed of all of them.

    Returns
    -------
    A table with a row for each regime, number of steps and rounding: mean and variance as shares of the true ones, the
    share of zeros beside the true one, and the Wasserstein-1 distance; and the samples by the same keys.

    Examples
    --------
    >>> table, samples = rounding_study(200, n_steps=(10,))
    >>> table.query("rounding == 'nearest' and regime == 'low counts'")["variance_ratio"].item()
    0.0
    """
    rows, samples = [], {}
    for (name, regime), steps, rounding in product(REGIMES.items(), n_steps, STUDIED):
        drawn = samples[name, steps, rounding] = sample_rounded(regime, rounding, n, steps, seed)
        # Quantiles at the middle of n equal shares: the sample of that size that is closest to the law.
        ideal = regime.law.ppf((np.arange(n) + 0.5) / n)
        row = {"regime": name, "n_steps": steps, "rounding": rounding}
        row |= {"mean_ratio": drawn.mean() / regime.mean, "variance_ratio": drawn.var() / regime.variance}
        row |= {"zeros": (drawn == 0).mean(), "true_zeros": regime.pmf(1)[0]}
        rows.append(row | {"wasserstein_1": np.abs(np.sort(drawn) - ideal).mean()})
    return pd.DataFrame(rows), samples
