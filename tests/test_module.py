"""A minibatch is read, noised, predicted, and what is noised counts in the loss."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from sccountsdiff.data.missing import OBSERVED_KEY
from sccountsdiff.diffusion import NOISED, OBSERVED, Fisher, count_loss, draw_noised, nb_loss
from sccountsdiff.module import LARGEST_LEVEL, CountsDiffModule

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


class TestCalibration:
    GROUPS = np.repeat([0, 1], [8, 4])

    @staticmethod
    def cells(theta, n=2000):
        """The second group is negative binomial, with a dispersion that the untrained network, whose is e, does not know."""
        rng = np.random.default_rng(0)
        means = np.linspace(20, 40, N_GENES)
        counts = rng.poisson(means * np.ones((n, 1)))
        counts[:, 8:] = rng.poisson(means[8:] * rng.gamma(theta, 1 / theta, (n, 4)))
        x0 = torch.from_numpy(counts.astype(np.float32))
        nothing = torch.zeros(n, 0)
        return {"x0": x0, "missing": x0 < 0, "categories": nothing.long(), "continuous": nothing}

    @pytest.mark.parametrize("theta", [1.0, 2.0, 6.0])
    def test_finds_the_dispersion_of_a_group_that_is_not_seen(self, theta):
        """Eight thousand counts: the standard error of a log dispersion is some hundredths."""
        cells = self.cells(theta)
        module = make(gene_groups=self.GROUPS)
        module.denoiser.gene_means.copy_(cells["x0"].mean(0))
        module.denoiser.fit(cells["x0"], cells["missing"])
        module.denoiser.gene_max.fill_(torch.inf)  # no bound
        module.calibrate(**cells)
        assert abs(float(module.denoiser.group_depth.log_dispersion[1]) - (np.log(theta) - 1)) < 0.15
        assert module.denoiser.group_depth.log_dispersion[0] > 1  # Poisson counts have none

    def test_cells_that_lack_the_group_have_no_say(self):
        cells = self.cells(1.0, n=400)
        module = make(gene_groups=self.GROUPS)
        module.calibrate(**{key: value[:300] for key, value in cells.items()})
        expected = module.denoiser.group_depth.log_dispersion.clone()
        cells["missing"][300:, 8:] = True
        module.calibrate(**cells)
        torch.testing.assert_close(module.denoiser.group_depth.log_dispersion[1], expected[1], atol=0.03, rtol=0)
        cells["missing"][:, 8:] = True
        module.calibrate(**cells)
        assert module.denoiser.group_depth.log_dispersion.tolist() == [0, 0]  # nothing to learn from

    def test_what_is_predicted_of_a_group_that_is_not_seen_adds_up(self):
        """The untrained network has half of the means of the second group; cells that lack it have no say."""
        cells = self.cells(1.0, n=400)
        module = make(gene_groups=self.GROUPS)
        module.denoiser.gene_means.copy_(cells["x0"].mean(0))
        module.denoiser.fit(cells["x0"], cells["missing"])
        module.denoiser.gene_means[8:] /= 2
        cells["missing"][300:, 8:] = True
        cells["x0"][300:, 8:] = 0
        module.level(**cells)
        assert float(module.denoiser.group_depth.log_level[1]) == pytest.approx(np.log(2), abs=0.1)
        x = cells["x0"].clone()
        x[:, 8:] = 0
        status = torch.tensor([OBSERVED] * 8 + [NOISED] * 4).expand(400, -1).float()
        law = module.denoise_with(cells["categories"], cells["continuous"])(
            x, status, torch.ones(400), torch.zeros(400) > 0
        )
        ratio = law.mean.detach()[:300, 8:].sum() / cells["x0"][:300, 8:].sum()
        assert float(ratio) == pytest.approx(1, abs=1e-5)

    def test_dispersions_are_left_alone_without_groups(self):
        module = make()
        before = {key: value.clone() for key, value in module.state_dict().items()}
        module.calibrate(**self.cells(1.0, n=10))
        assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())

    @pytest.mark.parametrize("head", ["poisson", "nb_mixture"])
    def test_what_is_predicted_adds_up_at_each_time(self, head):
        """The network is 5 % too low. Of 24,000 counts of 30 each, half are hidden, and some of each are still to come."""
        cells = self.cells(1e6)
        module = make(head=head)
        module.denoiser.gene_means.copy_(cells["x0"].mean(0))
        module.denoiser.backbone.decoder.mean.bias.data.fill_(np.log(0.95))
        module.denoiser.gene_max.fill_(torch.inf)
        module.level(**cells)
        first, *others = module.denoiser.log_levels.tolist()
        assert first == others[0]  # at t = 0 there is nothing to add up
        to_come = 12_000 * 30 * (1 - module.schedule.survival(torch.linspace(0, 1, len(others) + 1)[1:]).numpy())
        if head == "poisson":
            assert (np.abs(others + np.log(0.95)) < 4 / np.sqrt(to_come)).all()
        else:  # what is left of a gene says more of its rate than the network, so that there is less to correct
            assert others[-1] == pytest.approx(-np.log(0.95), abs=0.003) and max(others) == others[-1]

    def test_levels_are_bounded_and_those_of_an_earlier_training_forgotten(self):
        cells = self.cells(1.0, n=200)
        module = make(head="poisson")
        module.denoiser.gene_means.copy_(cells["x0"].mean(0))
        module.denoiser.backbone.decoder.mean.bias.data.fill_(-0.5)
        module.level(**cells)
        once = module.denoiser.log_levels.clone()
        module.level(**cells)
        assert torch.equal(module.denoiser.log_levels, once) and once[-1] == np.float32(LARGEST_LEVEL)
        module.denoiser.forget_corrections()
        assert not module.denoiser.log_levels.any()

    def test_what_may_be_chance_is_no_level(self):
        """Of five cells that the network is right about, the sum is off by some percent."""
        cells = self.cells(1.0, n=5)
        module = make(head="poisson")
        module.denoiser.gene_means.copy_(self.cells(1.0)["x0"].mean(0))
        module.level(**cells)
        assert (module.denoiser.log_levels == 0).sum() >= 6

    def test_the_paper_s_head_has_no_level(self):
        """Its mean is what the network says, and nothing is added to it."""
        module = make(head="softplus")
        module.level(**self.cells(1.0, n=20))
        assert not module.denoiser.log_levels.any()


def test_sampling_is_left_to_the_model():
    with pytest.raises(NotImplementedError, match="posterior_predictive_sample"):
        make().sample()


def test_unknown_head():
    with pytest.raises(KeyError, match="Unknown head 'zip'"):
        make(head="zip")
