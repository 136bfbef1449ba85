import numpy as np

from sccountsdiff import pl


def test_every_site_is_counted_once_and_nothing_else(ax):
    rng = np.random.default_rng(0)
    truth, imputed = rng.poisson(5, (20, 30)), rng.gamma(2, 3, (20, 30))
    sites = rng.random(truth.shape) < 0.4
    pl.imputed_vs_truth(truth, imputed, sites, ax=ax)
    assert np.ma.filled(ax.collections[0].get_array(), 0).sum() == sites.sum()


def test_true_counts_lie_on_the_diagonal(ax):
    truth = np.random.default_rng(0).poisson(5, (20, 30))
    pl.imputed_vs_truth(truth, truth, truth >= 0, ax=ax)
    entries = np.ma.filled(ax.collections[0].get_array(), 0).reshape(39, 39)
    assert entries.sum() == np.trace(entries) == truth.size
