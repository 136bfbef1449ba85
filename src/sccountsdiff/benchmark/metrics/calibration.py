"""Whether draws are as spread as the truth: probability integral transform and interval coverage."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
from scipy import stats

from sccountsdiff.benchmark.metrics.inputs import check_sites, draws_at_sites
from sccountsdiff.benchmark.metrics.registry import register_metric


def pit(truth: np.ndarray, draws: np.ndarray, sites: np.ndarray, *, seed: int = 0) -> np.ndarray:
    """Randomised rank of each hidden count among the draws for it, between 0 and 1.

    Uniform if truth and draws come from the same distribution, whatever their number and however many ties counts have:
    with ``below`` draws under the count and ``equal`` at it, the value is uniform between ``below`` and
    ``below + equal + 1``, over the number of draws plus one.

    Parameters
    ----------
    truth
        Counts (cells, genes).
    draws
        Draws at the sites, (n_draws, n_sites), in row-major order: ``full_draws[:, sites]``.
    sites
        Boolean (cells, genes), ``True`` where the entry was hidden.
    seed
        Seed of the randomisation of ties.

    Returns
    -------
    One value per site.

    Examples
    --------
    >>> import numpy as np
    >>> draws = np.array([[0], [0], [1], [9]])
    >>> value = pit(np.array([[5]]), draws, np.array([[True]]))  # three of four draws are below 5
    >>> bool(3 / 5 <= value[0] <= 4 / 5)
    True
    """
    x, draws = draws_at_sites(truth, draws, sites)
    below, equal = np.zeros(len(x), dtype=np.int32), np.zeros(len(x), dtype=np.int32)
    for draw in draws:
        below += draw < x
        equal += draw == x
    return (below + np.random.default_rng(seed).random(len(x)) * (equal + 1)) / (len(draws) + 1)


@register_metric("pit_ks", direction="lower", group="calibration")
def pit_ks(
    truth: np.ndarray, draws: np.ndarray, sites: np.ndarray, *, gene_strata: np.ndarray | None = None, seed: int = 0
) -> float | dict[Hashable, float]:
    """Kolmogorov distance between the :func:`~sccountsdiff.benchmark.metrics.pit` values and the uniform distribution: 0 is perfectly calibrated.

    Parameters
    ----------
    truth, draws, sites
        As in :func:`~sccountsdiff.benchmark.metrics.pit`.
    gene_strata
        One label per gene, such as a bin of mean expression: the distance is then given for each label. Too wide for low
        genes and too narrow for high ones can look calibrated overall.
    seed
        Seed of the randomisation of ties.

    Returns
    -------
    The distance, or a dictionary from label to distance.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> sites = np.ones((200, 10), dtype=bool)
    >>> truth = rng.poisson(2, sites.shape)
    >>> pit_ks(truth, rng.poisson(2, (20, 2000)), sites) < 0.05 < pit_ks(truth, rng.poisson(3, (20, 2000)), sites)
    True
    """
    values = pit(truth, draws, sites, seed=seed)
    if gene_strata is None:
        return _distance_from_uniform(values)
    gene_strata = np.asarray(gene_strata)
    if gene_strata.shape != (truth.shape[1],):
        raise ValueError(
            f"gene_strata must have one label for each of {truth.shape[1]} genes, found {gene_strata.shape}."
        )
    labels = gene_strata[np.nonzero(sites)[1]]
    return {label.item(): _distance_from_uniform(values[labels == label]) for label in np.unique(labels)}


@register_metric("pit_ks_thirds", direction="lower", group="calibration")
def pit_ks_thirds(truth: np.ndarray, draws: np.ndarray, sites: np.ndarray, *, seed: int = 0) -> float:
    """Largest :func:`~sccountsdiff.benchmark.metrics.pit_ks` of three thirds of the genes: those with low, middling and high means.

    Draws that are too wide for low genes and too narrow for high ones can look calibrated overall. The means are those of
    the hidden counts, so that thirds hold for any choice of cells; genes that are never hidden do not count.

    Parameters
    ----------
    truth, draws, sites, seed
        As in :func:`~sccountsdiff.benchmark.metrics.pit`.

    Returns
    -------
    The distance in the worst third, 0 at best.

    Examples
    --------
    Genes with rates 1, 2 and 9, of which the last is drawn wrongly:

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> rates, sites = np.array([1, 2, 9]), np.ones((500, 3), dtype=bool)
    >>> truth, draws = rng.poisson(rates, sites.shape), rng.poisson([1, 2, 12], (20, *sites.shape))
    >>> overall, worst = pit_ks(truth, draws[:, sites], sites), pit_ks_thirds(truth, draws[:, sites], sites)
    >>> worst > 2 * overall
    True
    """
    check_sites(truth, sites)
    n_hidden = sites.sum(axis=0)
    is_hidden = n_hidden > 0
    means = np.where(sites, truth, 0).sum(axis=0, dtype=np.float64)[is_hidden] / n_hidden[is_hidden]
    thirds = np.zeros(len(n_hidden), dtype=int)
    thirds[is_hidden] = means.argsort(kind="stable").argsort(kind="stable") * 3 // len(means)
    return max(pit_ks(truth, draws, sites, gene_strata=thirds, seed=seed).values())


def coverage(truth: np.ndarray, draws: np.ndarray, sites: np.ndarray, *, level: float = 0.9, seed: int = 0) -> float:
    """Share of the hidden counts within the central interval of their draws.

    A count on the edge of its interval is inside with the probability that makes the share equal to ``level`` for perfect
    draws: it is inside if its :func:`~sccountsdiff.benchmark.metrics.pit` value is in the central ``level``. (A closed interval of counts covers more
    than its level however good the draws are.)

    Parameters
    ----------
    truth, draws, sites
        As in :func:`~sccountsdiff.benchmark.metrics.pit`.
    level
        Nominal coverage.
    seed
        Seed of the randomisation of ties.

    Returns
    -------
    The share, between 0 and 1.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> sites = np.ones((200, 10), dtype=bool)
    >>> share = coverage(rng.poisson(2, sites.shape), rng.poisson(2, (20, 2000)), sites, level=0.8)
    >>> abs(share - 0.8) < 0.03
    True
    """
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, found {level}.")
    return float(np.mean(np.abs(pit(truth, draws, sites, seed=seed) - 0.5) <= level / 2))


@register_metric("coverage_gap", direction="zero", group="calibration")
def coverage_gap(
    truth: np.ndarray, draws: np.ndarray, sites: np.ndarray, *, level: float = 0.9, seed: int = 0
) -> float:
    """Coverage of the central interval minus its level: below 0 for draws that are too sure.

    Parameters
    ----------
    truth, draws, sites, level, seed
        As in :func:`coverage`.

    Returns
    -------
    The difference, 0 at best.

    Examples
    --------
    >>> import numpy as np
    >>> sites = np.ones((1, 2), dtype=bool)
    >>> coverage_gap(np.array([[0, 9]]), np.full((99, 2), 5), sites)
    -0.9
    """
    return coverage(truth, draws, sites, level=level, seed=seed) - level


def _distance_from_uniform(values: np.ndarray) -> float:
    return float(stats.ks_1samp(values, stats.uniform.cdf, method="asymp").statistic)
