"""Counts of ten dimensions with a known law: negative binomials that share a log-normal size factor (App. D.1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class NegativeBinomialToy:
    """``x_d ~ NB(s * mean_d, dispersion_d)`` with one size factor ``s`` for each sample, ``log s ~ N(0, sd^2)``.

    Given ``s`` the dimensions are independent; ``s`` is all that ties them together.

    Parameters
    ----------
    means
        Mean of each dimension at ``s = 1``.
    dispersions
        Inverse dispersion theta of each dimension: the variance at ``s = 1`` is ``mean + mean^2 / theta``.
    size_factor_sd
        Standard deviation of ``log s``.

    Examples
    --------
    >>> import numpy as np
    >>> toy = NegativeBinomialToy(np.array([0.5, 2.0]), np.array([1.0, 0.5]))
    >>> toy.sample(3, np.random.default_rng(0)).shape
    (3, 2)
    """

    means: np.ndarray
    dispersions: np.ndarray
    size_factor_sd: float = 0.6

    def __post_init__(self):
        for name in ("means", "dispersions"):
            values = np.asarray(getattr(self, name), dtype=np.float64)
            if values.ndim != 1 or not (np.isfinite(values) & (values > 0)).all():
                raise ValueError(f"`{name}` must be one positive number for each dimension, not {values}.")
            object.__setattr__(self, name, values)
        n, m = len(self.means), len(self.dispersions)
        if n != m:
            raise ValueError(f"`means` and `dispersions` need the same length, not {n} and {m}.")
        if self.size_factor_sd < 0:
            raise ValueError(f"`size_factor_sd` must be at least 0, not {self.size_factor_sd}.")

    @classmethod
    def draw(
        cls,
        seed: int,
        *,
        n_dimensions: int = 10,
        mean_range: tuple[float, float] = (0.05, 0.5),
        dispersion_range: tuple[float, float] = (0.2, 5.0),
        size_factor_sd: float = 0.6,
    ) -> NegativeBinomialToy:
        """A toy whose means and dispersions are log-uniform within their ranges, by default the paper's.

        Examples
        --------
        >>> toy = NegativeBinomialToy.draw(0)
        >>> len(toy.means), bool((toy.means <= 0.5).all())
        (10, True)
        """
        for name, (low, high) in (("mean_range", mean_range), ("dispersion_range", dispersion_range)):
            if not 0 < low <= high:
                raise ValueError(f"`{name}` must be two positive numbers, the smaller first, not {(low, high)}.")
        if n_dimensions < 1:
            raise ValueError(f"`n_dimensions` must be at least 1, not {n_dimensions}.")
        rng = np.random.default_rng(seed)
        log_uniform = lambda low, high: np.exp(rng.uniform(np.log(low), np.log(high), n_dimensions))
        return cls(log_uniform(*mean_range), log_uniform(*dispersion_range), size_factor_sd)

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Counts, ``(n, dimensions)``: Poisson counts whose rates are gamma."""
        size_factors = rng.lognormal(0.0, self.size_factor_sd, (n, 1))
        rates = rng.gamma(self.dispersions, self.means * size_factors / self.dispersions)
        return rng.poisson(rates).astype(np.float32)

    @property
    def mean(self) -> np.ndarray:
        """``E x = mean E s``, for each dimension.

        Examples
        --------
        >>> NegativeBinomialToy([2.0], [1.0], size_factor_sd=0.0).mean.tolist()
        [2.0]
        """
        return self.means * np.exp(self.size_factor_sd**2 / 2)

    @property
    def covariance(self) -> np.ndarray:
        """``Cov(x_c, x_d) = mean_c mean_d Var s``, and on the diagonal the variance of the counts given ``s`` on top.

        Examples
        --------
        >>> NegativeBinomialToy([2.0], [1.0], size_factor_sd=0.0).covariance.tolist()
        [[6.0]]
        """
        second_moment = np.exp(2 * self.size_factor_sd**2)  # E s^2
        shared = np.outer(self.means, self.means) * (second_moment - np.exp(self.size_factor_sd**2))
        return shared + np.diag(self.mean + self.means**2 / self.dispersions * second_moment)
