"""How probable the hidden counts are under the imputed means."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import gammaln, xlogy

from sccountsdiff.benchmark.metrics.inputs import at_sites, blocks
from sccountsdiff.benchmark.metrics.registry import register_metric

FLOOR = 1e-6


@register_metric("poisson_loss", direction="lower", group="predictive")
def poisson_loss(truth: np.ndarray, imputed: np.ndarray, sites: np.ndarray, *, floor: float = FLOOR) -> float:
    """Mean over the sites of ``mu - x log(mu)``, the Poisson log score without the part that no method can change.

    Parameters
    ----------
    truth, imputed
        Counts ``x`` and means ``mu`` (cells, genes).
    sites
        Boolean (cells, genes), ``True`` where the entry was hidden.
    floor
        Means below it are raised to it: a mean of 0 would make any positive count impossible.

    Returns
    -------
    The mean loss; lower is better, and it may be negative.

    Examples
    --------
    >>> import numpy as np
    >>> poisson_loss(np.array([[0, 2]]), np.array([[3.0, 1.0]]), np.ones((1, 2), dtype=bool))
    2.0
    """
    x, imputed = at_sites(truth, imputed, sites)
    mu = np.maximum(imputed, floor)
    return float(sum(np.sum(mu[b] - x[b] * np.log(mu[b]), dtype=np.float64) for b in blocks(len(x), 1 << 20)) / len(x))


@register_metric("nb_log_score", direction="lower", group="predictive")
def nb_log_score(
    truth: np.ndarray,
    imputed: np.ndarray,
    sites: np.ndarray,
    *,
    theta: float | np.ndarray | None = None,
    floor: float = FLOOR,
) -> float:
    """Mean over the sites of minus the log probability under a negative binomial with the imputed means.

    The variance is ``mu + mu**2 / theta``. Methods that give no dispersion are compared at their best: ``theta`` is then
    the one number that suits the method's own means and the hidden counts best.

    Parameters
    ----------
    truth, imputed
        Counts ``x`` and means ``mu`` (cells, genes).
    sites
        Boolean (cells, genes), ``True`` where the entry was hidden.
    theta
        Inverse dispersion: a number, one per gene, or (cells, genes). By default fitted, see above.
    floor
        Means below it are raised to it.

    Returns
    -------
    The mean score in nats; lower is better.

    Examples
    --------
    With a large ``theta`` this is the Poisson log score:

    >>> import numpy as np
    >>> from scipy.stats import poisson
    >>> truth, mean, sites = np.array([[0, 2]]), np.array([[3.0, 1.0]]), np.ones((1, 2), dtype=bool)
    >>> score = nb_log_score(truth, mean, sites, theta=1e8)
    >>> bool(np.isclose(score, -poisson.logpmf(truth, mean).mean()))
    True
    """
    x, imputed = at_sites(truth, imputed, sites)
    mu = np.maximum(imputed, floor)
    if theta is not None:
        theta = np.asarray(theta, dtype=np.float64)
        if np.any(theta <= 0):
            raise ValueError(f"theta must be positive, found {theta.min():g}.")
        return _nb_loss(x, mu, theta if theta.ndim == 0 else np.broadcast_to(theta, truth.shape)[sites])
    fit = minimize_scalar(
        lambda log_theta: _nb_loss(x, mu, np.exp(log_theta)), bounds=(-8, 12), method="bounded", options={"xatol": 1e-3}
    )
    return float(fit.fun)


def _nb_loss(x: np.ndarray, mu: np.ndarray, theta: np.ndarray) -> float:
    total = 0.0
    for b in blocks(len(x), 1 << 20):
        r = np.asarray(theta[b] if np.ndim(theta) else theta)
        k, m = x[b].astype(np.float64), mu[b].astype(np.float64)
        log_p = gammaln(k + r) - gammaln(r) - gammaln(k + 1) - r * np.log1p(m / r) + xlogy(k, m / (m + r))
        total -= log_p.sum()
    return float(total / len(x))
