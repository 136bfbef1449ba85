"""A minibatch is read, noised, predicted, and what is noised counts in the loss."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from sccountsdiff.data.missing import OBSERVED_KEY
from sccountsdiff.diffusion import NOISED, OBSERVED, Fisher, count_loss, draw_noised, nb_loss
from sccountsdiff.module import CountsDiffModule

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
    def test_nan_and_mask_are_missing_and_zero(self):
        x = torch.tensor([[1.0, torch.nan, 3.0, 0.0]])
        observed = torch.tensor([[1.0, 1.0, 0.0, 1.0]])
        module = CountsDiffModule(np.ones(4), backbone_kwargs={"n_hidden": 4})
        cells = module.read({"X": x, OBSERVED_KEY: observed})
        assert cells["missing"].tolist() == [[False, True, True, False]]
        assert cells["x0"].tolist() == [[1, 0, 0, 0]]
        assert cells["categories"].shape == (1, 0) and cells["continuous"].shape == (1, 0)

    def test_a_mask_may_be_of_whole_groups(self):
        module = CountsDiffModule(np.ones(4), gene_groups=np.array([0, 1, 1, 0]), backbone_kwargs={"n_hidden": 4})
        x = torch.tensor([[1.0, 2.0, 3.0, torch.nan], [1.0, 2.0, 3.0, 4.0]])
        of_groups = module.read({"X": x, OBSERVED_KEY: torch.tensor([[True, False], [False, True]])})
        assert of_groups["missing"].tolist() == [[False, True, True, True], [True, False, False, True]]
        of_genes = module.read({"X": x, OBSERVED_KEY: torch.tensor([[1.0, 0, 0, 1], [0, 1, 1, 0]])})
        assert torch.equal(of_genes["missing"], of_groups["missing"])

    def test_zeros_of_expressed_genes_are_missing_if_asked_for(self):
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
        assert {value.dtype for value in vars(out["noised"]).values()} == {torch.float32}
        assert out["continuous"].dtype == torch.float32
        assert loss.dtype == torch.float32 and loss.isfinite()


class TestForwardProcess:
    @pytest.mark.parametrize("observed_training", [False, True])
    def test_is_that_of_the_mathematics(self, observed_training):
        """The same random numbers, with the schedule of the module and what is missing in the batch."""
        module, batch = make(observed_training=observed_training, schedule="fisher"), tensors()
        batch["X"][::3, 1] = torch.nan
        cells, out = draw(module, batch)
        expected = draw_noised(
            cells["x0"],
            Fisher(),
            missing=batch["X"].isnan(),
            observed_training=observed_training,
            thin_cells=observed_training,
            generator=torch.Generator().manual_seed(0),
        )
        for name, value in vars(expected).items():
            assert torch.equal(value, getattr(out["noised"], name)), name

    def test_generator_decides(self):
        module, batch = make(), tensors()
        first, second, other = (draw(module, batch, seed)[1] for seed in (0, 0, 1))
        assert torch.equal(first["null"], second["null"]) and not torch.equal(first["null"], other["null"])
        assert torch.equal(first["noised"].xt, second["noised"].xt)
        assert not torch.equal(first["noised"].xt, other["noised"].xt)

    def test_share_of_cells_without_covariates(self):
        _, out = draw(make(p_uncond=0.3), tensors(4000))
        assert abs(out["null"].float().mean() - 0.3) < 4 * (0.3 * 0.7 / 4000) ** 0.5
        assert not draw(make(p_uncond=0.0), tensors())[1]["null"].any()


class TestLoss:
    def test_is_the_weighted_mean_over_noised_entries(self):
        module, batch = make(), tensors(50)
        batch["X"][::3, 1] = torch.nan
        _, out = draw(module, batch)
        noised = out["noised"]
        shape = noised.y.shape
        generator = torch.Generator().manual_seed(1)
        outputs = torch.randn(2, *shape, generator=generator)
        given = module.generative(**out)["given"]
        prediction = module.denoiser.head.predict(outputs, given)
        total = weight = 0.0
        for i, j in np.ndindex(*shape):
            if noised.status[i, j] == NOISED:
                y, log_mean, log_theta = noised.y[i, j], prediction.log_mean[i, j], prediction.log_dispersion[i, j]
                total += noised.weight[i] * (count_loss(y, log_mean) + nb_loss(y, log_mean, log_theta))
                weight += 1
        loss = module.loss(batch, out, {"outputs": outputs, "given": given}).loss
        torch.testing.assert_close(loss, total / weight)

    def test_a_batch_without_noised_entries_costs_nothing(self):
        module, batch = make(), tensors(4)
        _, out = draw(module, batch)
        noised = out["noised"]
        nothing = dataclasses.replace(noised, status=torch.full_like(noised.status, OBSERVED))
        loss = module.loss(batch, out | {"noised": nothing}, module.generative(**out)).loss
        assert loss == 0

    def test_depends_on_missing_entries_in_no_way(self):
        module, batch = make(), tensors(50)
        observed = torch.ones_like(batch["X"])
        observed[:, ::4] = 0
        losses = []
        for value in (0.0, 50.0):
            x = torch.where(observed == 0, value, batch["X"])
            generator = torch.Generator().manual_seed(0)
            losses.append(module({"X": x, OBSERVED_KEY: observed}, inference_kwargs={"generator": generator})[2].loss)
        assert losses[0] == losses[1]


class TestDenoiseWith:
    def test_unseen_categories_and_null_are_the_same(self):
        module = make(n_categories=[3], head="poisson")
        with torch.no_grad():
            module.denoiser.backbone.decoder.mean.weight.normal_()
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
    with pytest.raises(KeyError, match="Unknown head 'zip'"):
        make(head="zip")
