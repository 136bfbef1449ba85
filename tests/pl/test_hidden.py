import numpy as np
import pytest
import scipy.sparse as sp

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


@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csc_array, sp.coo_matrix])
def test_sparse_matrices_are_drawn_like_dense_ones(ax, kind):
    rng = np.random.default_rng(0)
    truth, imputed = rng.poisson(1, (20, 30)), rng.gamma(2, 1, (20, 30)) * (rng.random((20, 30)) < 0.5)
    sites = rng.random(truth.shape) < 0.4
    pl.imputed_vs_truth(truth, imputed, sites, ax=ax)
    expected = np.ma.filled(ax.collections[0].get_array(), 0)
    for arguments in ((kind(truth), kind(imputed), sites), (truth, imputed, kind(sites)), (truth, imputed, sites * 1)):
        ax.clear()
        pl.imputed_vs_truth(*arguments, ax=ax)
        np.testing.assert_array_equal(np.ma.filled(ax.collections[0].get_array(), 0), expected)


def test_takes_what_imputation_returns(model, sites, ax):
    imputed = model.impute(sites=sites, n_samples=2, n_steps=1, key_added=None, silent=True)
    assert sp.issparse(imputed)
    pl.imputed_vs_truth(model.adata.X, imputed, sites, ax=ax)
    assert np.ma.filled(ax.collections[0].get_array(), 0).sum() == sites.sum()


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
def test_refuses_what_does_not_fit(kind):
    truth = np.ones((3, 4))
    with pytest.raises(ValueError, match="`sites` marks no entry as hidden"):
        pl.imputed_vs_truth(truth, truth, kind(truth == 0), show=False)
    with pytest.raises(ValueError, match=r"`imputed` has shape \(3, 3\), but `truth` has shape \(3, 4\)"):
        pl.imputed_vs_truth(truth, kind(truth[:, :3]), truth > 0, show=False)
    with pytest.raises(ValueError, match=r"`sites` has shape \(2, 4\), but `truth` has shape \(3, 4\)"):
        pl.imputed_vs_truth(truth, truth, kind(truth[:2]), show=False)
