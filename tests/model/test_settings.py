"""Each setting of sampling is written once, and checked against the model before any work."""

from __future__ import annotations

import logging

import numpy as np
import pytest

import sccountsdiff

MEAN = {"n_steps": 1, "final": "mean"}


class TestRefusals:
    def test_a_word_is_no_strength(self, impute, query, spy):
        with pytest.raises(TypeError, match="`guidance` must be a number, not '2'"):
            impute(query, guidance="2")
        assert not spy

    def test_draws_in_one_step_with_noised_counts_are_warned_of(self, impute, query, sites, caplog):
        with caplog.at_level(logging.WARNING, "sccountsdiff"):
            draws = impute(query, sites=sites, known="noised", n_steps=1, return_mean=False)
        assert "draws do not depend on the cell" in caplog.text
        query.X = query.X * 3
        np.testing.assert_array_equal(
            impute(query, sites=sites, known="noised", n_steps=1, return_mean=False)[:, sites], draws[:, sites]
        )

    def test_negative_binomial_draws_need_its_head(self, simulate, train):
        model = train(simulate(20).adata, 1, model_kwargs={"head": "poisson"})
        with pytest.raises(ValueError, match=r"`rounding='nb'` needs .*`head='nb'`; this one has the head Poisson"):
            model.impute(rounding="nb", silent=True)
        with pytest.raises(ValueError, match="`guidance=2` has nothing to act on: the model has no covariates"):
            model.impute(guidance=2, silent=True)

    def test_a_grid_of_times_bounds_the_steps(self, simulate, train):
        schedule = sccountsdiff.diffusion.Blackout(n_grid=5)
        model = train(simulate(20).adata, 1, model_kwargs={"schedule": schedule})
        model.impute(n_steps=4, n_samples=1, n_folds=1, silent=True)
        with pytest.raises(ValueError, match="`n_steps` can be at most 4 on the 5 time points"):
            model.impute(n_steps=5, silent=True)

    @pytest.mark.parametrize("guidance", [0, 0.5, 2])
    def test_guidance(self, strict, guidance):
        message = f"`guidance={guidance}` needs predictions without covariates, .*`p_uncond=0`. Use `guidance=1`"
        for method in (
            strict.impute,
            strict.denoise,
            strict.get_normalized_expression,
            strict.posterior_predictive_sample,
            lambda guidance: strict.generate(2, {"cell_type": "B", "age": 0.0}, guidance=guidance),
        ):
            with pytest.raises(ValueError, match=message):
                method(guidance=guidance)

    def test_models_without_covariates_have_nothing_to_drop(self, simulate, train):
        model = train(simulate(30).adata, 1, model_kwargs={"p_uncond": 0.0})
        assert model.generate(2, n_steps=1, silent=True).shape == (2, 20)
        kwargs = {"n_samples": 1, "n_steps": 1, "seed": 0, "silent": True}
        results = [model.impute(guidance=guidance, **kwargs).toarray() for guidance in (0, 1)]
        np.testing.assert_array_equal(*results)

    def test_guidance_needs_covariates(self, plain):
        with pytest.raises(ValueError, match="`guidance=3` has nothing to act on: the model has no covariates"):
            plain.denoise(guidance=3)
        with pytest.raises(ValueError, match="`guidance=3` has nothing to act on: the model has no covariates"):
            plain.get_normalized_expression(guidance=3)
