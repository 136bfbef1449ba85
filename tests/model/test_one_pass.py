"""What `impute` does unless draws are asked for."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

MEAN = {"n_steps": 1, "final": "mean"}


class TestDefault:
    """Unless draws are asked for, the average over all of them comes from one pass, in closed form."""

    def test_is_the_one_pass_mean(self, trained, query, sites, spy):
        kwargs = {"sites": sites, "silent": True, "key_added": None}
        default = trained.impute(query, **kwargs).toarray()
        n_calls = len(spy)
        for options in ({"n_samples": 0}, MEAN):
            np.testing.assert_array_equal(trained.impute(query, **options, **kwargs).toarray(), default)
        assert n_calls == 1, "one chain, of one step"

    def test_spread_is_that_of_draws(self, trained, query, sites, dense):
        trained.impute(query, sites=sites, quantiles=[0.05, 0.5, 0.95], silent=True)
        mean, sd = (dense(query.layers[key])[sites] for key in ("imputed", "imputed_sd"))
        assert (dense(query.layers["imputed_sd"])[~sites] == 0).all() and query.layers["imputed_sd"].dtype == "float32"
        n = 400
        kwargs = {"return_mean": False, "key_added": None, "silent": True, "seed": 0}
        draws = trained.impute(query, sites=sites, n_steps=1, n_samples=n, **kwargs)[:, sites]
        # Sums over entries, whose standard errors come from the draws, which are independent from one to the next.
        squares = ((draws - mean) ** 2).sum(1)
        assert abs(squares.mean() - (sd**2).sum()) < 4 * squares.std(ddof=1) / n**0.5
        for q in (0.05, 0.5, 0.95):
            below = (draws <= dense(query.layers[f"imputed_q{q}"])[sites]).mean(0)
            assert (below >= q - 4 * (q * (1 - q) / n) ** 0.5).all()

    def test_draws_are_made_where_they_are_asked_for(self, trained, query, sites, spy):
        kwargs = {"sites": sites, "silent": True, "key_added": None, "batch_size": 50}
        for options, n in (({"return_mean": False}, 5), ({"n_steps": 2}, 5), ({"n_samples": 3}, 3), ({}, 1)):
            spy.clear()
            trained.impute(query, **options, **kwargs)
            assert len(spy) == n, options

    def test_the_paper_s_model_averages_draws(self, simulate, train, spy):
        model = train(simulate(20).adata, 1, model_kwargs={"observed_training": False, "head": "softplus"})
        model.impute(n_folds=1, silent=True, batch_size=50)
        assert len(spy) == 5
        noted = model.adata.uns["sccountsdiff"]["imputed"]
        assert (noted["known"], noted["final"], noted["n_samples"]) == ("noised", "sample", 5)
        with pytest.raises(ValueError, match="`n_samples=0` needs a model that can be shown counts as they are"):
            model.impute(n_samples=0)

    def test_averages_of_draws_take_the_last_one_as_known(self, impute, query, sites, dense):
        """The mean over chains of the last expectation: the same mean, with less noise, than that of draws."""
        kwargs = {"sites": sites, "n_steps": 3, "n_samples": 20}
        chains = impute(query, final="mean", return_mean=False, **kwargs)
        np.testing.assert_allclose(dense(impute(query, **kwargs))[sites], chains.mean(0)[sites], rtol=1e-5)

    def test_small_values_may_be_left_out(self, impute, query):
        counts = query.X.toarray()
        full = impute(query, **MEAN)
        some = impute(query, min_value=0.5, **MEAN)
        assert sp.issparse(some) and not sp.issparse(full)
        np.testing.assert_array_equal(some.toarray(), np.where((counts == 0) & (full < 0.5), 0, full))
