"""One training draw: what is noised, what is known, what counts in the loss."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sccountsdiff.diffusion import MISSING, NOISED, OBSERVED, Cosine, Prediction, count_loss, nb_loss
from sccountsdiff.module import LAST_TIME_SHARE, NOTHING_KNOWN_SHARE, OBSERVED_KEY, CountsDiffModule

N_GENES = 12


def make(**kwargs):
    torch.manual_seed(0)
    settings = {"backbone_kwargs": {"n_hidden": 8, "n_layers": 1}, **kwargs}
    return CountsDiffModule(np.linspace(0.5, 3, N_GENES), **settings).eval()


def tensors(n_cells=500, seed=0):
    rng = np.random.default_rng(seed)
    return {"X": torch.from_numpy(rng.poisson(4, (n_cells, N_GENES)).astype(np.float32))}


def draw(module, batch, seed=0):
    cells = module.read(batch)
    return cells, module.inference(**cells, generator=torch.Generator().manual_seed(seed))


class TestRead:
    def test_nan_and_mask_are_absent_and_zero(self):
        x = torch.tensor([[1.0, torch.nan, 3.0, 0.0]])
        observed = torch.tensor([[1.0, 1.0, 0.0, 1.0]])
        module = CountsDiffModule(np.ones(4), backbone_kwargs={"n_hidden": 4})
        cells = module.read({"X": x, OBSERVED_KEY: observed})
        assert cells["missing"].tolist() == [[False, True, True, False]]
        assert cells["x0"].tolist() == [[1, 0, 0, 0]]
        assert cells["categories"].shape == (1, 0) and cells["continuous"].shape == (1, 0)

    def test_zeros_of_expressed_genes_are_absent_if_asked_for(self):
        module = CountsDiffModule(
            np.ones(3),
            n_categories=[5, 2],
            expressed=np.array([[1, 0, 0], [1, 1, 0]]),
            label_position=1,
            backbone_kwargs={"n_hidden": 4},
        )
        batch = {"X": torch.zeros(2, 3), "extra_categorical_covs": torch.tensor([[4, 0], [0, 1]])}
        assert module.read(batch)["missing"].tolist() == [[True, False, False], [True, True, False]]

    def test_continuous_covariates_are_standardised(self):
        module = make(continuous_location=[2.0, 0.0], continuous_scale=[4.0, 0.5])
        batch = tensors(2) | {"extra_continuous_covs": torch.tensor([[2.0, 1.0], [6.0, -1.0]])}
        assert module.read(batch)["continuous"].tolist() == [[0, 2], [1, -2]]

    def test_large_continuous_covariates_are_standardised_before_they_are_rounded(self):
        module = make(continuous_location=[1.7e9 + 49.5], continuous_scale=[30.0])
        values = 1.7e9 + torch.arange(100, dtype=torch.float64)[:, None]
        result = module.read(tensors(100) | {"extra_continuous_covs": values})["continuous"]
        assert result.dtype == torch.float32
        torch.testing.assert_close(result, (torch.arange(100.0)[:, None] - 49.5) / 30)

    def test_is_in_single_precision_whatever_the_default_of_torch(self):
        torch.set_default_dtype(torch.float64)
        try:
            module = make(n_categories=[3], continuous_location=[0.0], continuous_scale=[1.0])
            codes, values = torch.zeros(500, 1, dtype=torch.long), torch.zeros(500, 1)
            batch = tensors() | {"extra_categorical_covs": codes, "extra_continuous_covs": values}
            _, out = draw(module, batch)
            loss = module(batch)[2].loss
        finally:
            torch.set_default_dtype(torch.float32)
        assert {value.dtype for value in module.parameters()} == {torch.float32}
        assert {out[key].dtype for key in ("xt", "status", "y", "continuous")} == {torch.float32}
        assert loss.dtype == torch.float32 and loss.isfinite()


class TestForwardProcess:
    def test_nothing_but_noised_entries_change(self):
        cells, out = draw(make(), tensors())
        known = out["status"] == OBSERVED
        assert torch.equal(out["xt"][known], cells["x0"][known])
        assert torch.equal(out["xt"] + out["y"], cells["x0"])
        assert (out["y"] >= 0).all() and (out["y"][known] == 0).all()

    def test_absent_entries_are_neither_known_nor_noised(self):
        batch = tensors()
        missing = torch.rand(batch["X"].shape, generator=torch.Generator().manual_seed(1)) < 0.2
        batch["X"][missing] = torch.nan
        _, out = draw(make(), batch)
        assert torch.equal(out["status"] == MISSING, missing)
        assert (out["xt"][missing] == 0).all() and (out["y"][missing] == 0).all()

    def test_survivors_are_binomial(self):
        """Standardised by Bin(x0, p(t)), the survivors have mean 0 and variance 1."""
        module = make(observed_training=False)
        batch = {"X": torch.full((4000, N_GENES), 40.0)}
        _, out = draw(module, batch)
        inside = (out["t"] > 0.1) & (out["t"] < 0.9)
        p = torch.cos(torch.pi / 2 * out["t"][inside]) ** 2
        z = (out["xt"][inside] - 40 * p[:, None]) / (40 * p * (1 - p)).sqrt()[:, None]
        n = z.numel()
        assert abs(z.mean()) < 4 / n**0.5
        assert abs(z.var() - 1) < 4 * (2 / n) ** 0.5 + 0.01  # kurtosis of a binomial is at most slightly above 3

    def test_times_are_spread_evenly(self):
        _, out = draw(make(observed_training=False), tensors(1000))
        assert torch.equal((out["t"] * 1000).floor().sort().values, torch.arange(1000.0))
        torch.testing.assert_close(out["weight"], torch.pi / 2 * torch.sin(torch.pi * out["t"]), atol=1e-4, rtol=1e-4)
        assert out["weight"].mean() == pytest.approx(1, abs=0.01)

    def test_time_is_never_rounded_unless_on_a_grid(self):
        _, out = draw(make(observed_training=False), tensors(1000))
        assert len(out["t"].unique()) == 1000
        _, out = draw(make(observed_training=False, schedule=Cosine(n_grid=5)), tensors(1000))
        assert set(out["t"].tolist()) == {np.float32(1e-4).item(), 0.25, 0.5, 0.75, 1.0}

    def test_shares_of_known_entries_and_of_the_last_time(self):
        n = 4000
        _, out = draw(make(), tensors(n))
        last = (out["t"] == 1).float().mean()
        assert abs(last - LAST_TIME_SHARE) < 4 * (LAST_TIME_SHARE * (1 - LAST_TIME_SHARE) / n) ** 0.5
        assert (out["weight"][out["t"] == 1] == 1).all()
        assert (out["xt"][(out["status"] == NOISED) & (out["t"] == 1)[:, None]] == 0).all()
        share = (out["status"] == OBSERVED).float().mean(1)
        # Nothing is known of 15 %, and of those with a uniform share s that happens to leave none: (1 - s)^12.
        nothing = NOTHING_KNOWN_SHARE + (1 - NOTHING_KNOWN_SHARE) / (N_GENES + 1)
        assert abs((share == 0).float().mean() - nothing) < 4 * (nothing * (1 - nothing) / n) ** 0.5
        mean = (1 - NOTHING_KNOWN_SHARE) / 2
        assert abs(share.mean() - mean) < 4 * float(share.std()) / n**0.5

    def test_without_observed_training_nothing_is_known(self):
        _, out = draw(make(observed_training=False), tensors())
        assert (out["status"] == NOISED).all()

    def test_share_of_cells_without_covariates(self):
        _, out = draw(make(p_uncond=0.3), tensors(4000))
        assert abs(out["null"].float().mean() - 0.3) < 4 * (0.3 * 0.7 / 4000) ** 0.5
        assert not draw(make(p_uncond=0.0), tensors())[1]["null"].any()

    def test_generator_decides(self):
        module, batch = make(), tensors()
        first, second, other = (draw(module, batch, seed)[1] for seed in (0, 0, 1))
        assert all(torch.equal(first[key], second[key]) for key in first)
        assert not torch.equal(first["xt"], other["xt"])


class TestLoss:
    def test_is_the_weighted_mean_over_noised_entries(self):
        module, batch = make(), tensors(50)
        batch["X"][::3, 1] = torch.nan
        _, out = draw(module, batch)
        shape = out["y"].shape
        generator = torch.Generator().manual_seed(1)
        prediction = Prediction(torch.randn(shape, generator=generator), torch.randn(shape, generator=generator))
        total = weight = 0.0
        for i, j in np.ndindex(*shape):
            if out["status"][i, j] == NOISED:
                y, log_mean, log_theta = out["y"][i, j], prediction.log_mean[i, j], prediction.log_dispersion[i, j]
                total += out["weight"][i] * (count_loss(y, log_mean) + nb_loss(y, log_mean, log_theta))
                weight += 1
        loss = module.loss(batch, out, {"prediction": prediction}).loss
        torch.testing.assert_close(loss, total / weight)

    def test_the_dispersion_does_not_move_the_mean(self):
        module, batch = make(), tensors(20)
        _, out = draw(module, batch)
        grads = []
        for log_dispersion in (None, torch.zeros_like(out["y"])):
            log_mean = torch.zeros_like(out["y"], requires_grad=True)
            module.loss(batch, out, {"prediction": Prediction(log_mean, log_dispersion)}).loss.backward()
            grads.append(log_mean.grad)
        torch.testing.assert_close(*grads)

    def test_a_batch_without_noised_entries_costs_nothing(self):
        module, batch = make(), tensors(4)
        _, out = draw(module, batch)
        out["status"] = torch.full_like(out["status"], OBSERVED)
        loss = module.loss(batch, out, {"prediction": Prediction(torch.zeros_like(out["y"]))}).loss
        assert loss == 0

    def test_depends_on_absent_entries_in_no_way(self):
        module, batch = make(), tensors(50)
        seen = torch.ones_like(batch["X"])
        seen[:, ::4] = 0
        losses = []
        for value in (0.0, 50.0):
            x = torch.where(seen == 0, value, batch["X"])
            generator = torch.Generator().manual_seed(0)
            losses.append(module({"X": x, OBSERVED_KEY: seen}, inference_kwargs={"generator": generator})[2].loss)
        assert losses[0] == losses[1]


class TestDenoiseWith:
    def test_unseen_categories_and_null_are_the_same(self):
        module = make(n_categories=[3], head="poisson")
        with torch.no_grad():
            module.denoiser.backbone.decoder.weight.normal_()
            module.denoiser.backbone.blocks[0].modulation.weight.normal_()
        x, status, t = torch.ones(1, N_GENES), torch.zeros(1, N_GENES), torch.ones(1)
        null = torch.tensor([False])

        def mean(code, null):
            return module.denoise_with(torch.tensor([[code]]), torch.zeros(1, 0))(x, status, t, null).mean

        assert torch.equal(mean(3, null), mean(0, ~null))
        assert torch.equal(mean(2, ~null), mean(0, ~null))
        assert not torch.allclose(mean(2, null), mean(0, null))


def test_sampling_is_left_to_the_model():
    with pytest.raises(NotImplementedError, match="posterior_predictive_sample"):
        make().sample()


def test_unknown_head():
    with pytest.raises(ValueError, match="`head` must be one of"):
        make(head="zip")
