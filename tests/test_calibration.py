"""What is measured after training: sums that add up, and dispersions of groups that are not seen."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sccountsdiff.calibration import CALIBRATED_CELLS, LARGEST_LEVEL, LARGEST_ZERO_ODDS, calibrate, level
from sccountsdiff.diffusion import NOISED, OBSERVED
from sccountsdiff.module import CountsDiffModule
from sccountsdiff.nn import TruncatedNegativeBinomial

N_GENES = 12
GROUPS = np.repeat([0, 1], [8, 4])


def make(**kwargs):
    torch.manual_seed(0)
    network = {"n_hidden": 8, "n_layers": 1}
    return CountsDiffModule(np.linspace(0.5, 3, N_GENES), backbone_kwargs=network, **kwargs).eval()


def cells_of(theta, n=2000, seed=0):
    """The second group is negative binomial, with a dispersion that the untrained network, whose is e, does not know."""
    rng = np.random.default_rng(seed)
    means = np.linspace(20, 40, N_GENES)
    counts = rng.poisson(means * np.ones((n, 1)))
    counts[:, 8:] = rng.poisson(means[8:] * rng.gamma(theta, 1 / theta, (n, 4)))
    x0 = torch.from_numpy(counts.astype(np.float32))
    nothing = torch.zeros(n, 0)
    return {"x0": x0, "missing": x0 < 0, "categories": nothing.long(), "continuous": nothing}


@pytest.mark.parametrize("theta", [1.0, 2.0, 6.0])
def test_finds_the_dispersion_of_a_group_that_is_not_seen(theta):
    """Eight thousand counts: the standard error of a log dispersion is some hundredths."""
    cells = cells_of(theta)
    module = make(gene_groups=GROUPS)
    module.denoiser.gene_means.copy_(cells["x0"].mean(0))
    module.denoiser.fit(cells["x0"], cells["missing"])
    module.denoiser.gene_max.fill_(torch.inf)  # no bound
    calibrate(module, **cells)
    assert abs(float(module.denoiser.group_depth.log_dispersion[1]) - (np.log(theta) - 1)) < 0.15
    assert module.denoiser.group_depth.log_dispersion[0] > 1  # Poisson counts have none


def test_cells_that_lack_the_group_have_no_say():
    cells = cells_of(1.0, n=400)
    module = make(gene_groups=GROUPS)
    calibrate(module, **{key: value[:300] for key, value in cells.items()})
    expected = module.denoiser.group_depth.log_dispersion.clone()
    cells["missing"][300:, 8:] = True
    calibrate(module, **cells)
    torch.testing.assert_close(module.denoiser.group_depth.log_dispersion[1], expected[1], atol=0.03, rtol=0)
    cells["missing"][:, 8:] = True
    calibrate(module, **cells)
    assert module.denoiser.group_depth.log_dispersion.tolist() == [0, 0]  # nothing to learn from


def test_what_is_predicted_of_a_group_that_is_not_seen_adds_up():
    """The untrained network has half of the means of the second group; cells that lack it have no say."""
    cells = cells_of(1.0, n=400)
    module = make(gene_groups=GROUPS)
    module.denoiser.gene_means.copy_(cells["x0"].mean(0))
    module.denoiser.fit(cells["x0"], cells["missing"])
    module.denoiser.gene_means[8:] /= 2
    cells["missing"][300:, 8:] = True
    cells["x0"][300:, 8:] = 0
    level(module, **cells)
    assert float(module.denoiser.group_depth.log_level[1]) == pytest.approx(np.log(2), abs=0.1)
    x = cells["x0"].clone()
    x[:, 8:] = 0
    status = torch.tensor([OBSERVED] * 8 + [NOISED] * 4).expand(400, -1).float()
    law = module.denoise_with(cells["categories"], cells["continuous"])(
        x, status, torch.ones(400), torch.zeros(400) > 0
    )
    ratio = law.mean.detach()[:300, 8:].sum() / cells["x0"][:300, 8:].sum()
    assert float(ratio) == pytest.approx(1, abs=1e-5)


def test_dispersions_are_left_alone_without_groups():
    module = make()
    before = {key: value.clone() for key, value in module.state_dict().items()}
    calibrate(module, **cells_of(1.0, n=10))
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())


@pytest.mark.parametrize("head", ["poisson", "nb_mixture"])
def test_what_is_predicted_adds_up_at_each_time(head):
    """The network is 5 % too low. Of 24,000 counts of 30 each, half are hidden, and some of each are still to come."""
    cells = cells_of(1e6)
    module = make(head=head)
    module.denoiser.gene_means.copy_(cells["x0"].mean(0))
    module.denoiser.backbone.decoder.mean.bias.data.fill_(np.log(0.95))
    module.denoiser.gene_max.fill_(torch.inf)
    level(module, **cells)
    first, *others = module.denoiser.log_levels.tolist()
    assert first == others[0]  # at t = 0 there is nothing to add up
    to_come = 12_000 * 30 * (1 - module.schedule.survival(torch.linspace(0, 1, len(others) + 1)[1:]).numpy())
    if head == "poisson":
        assert (np.abs(others + np.log(0.95)) < 4 / np.sqrt(to_come)).all()
    else:  # what is left of a gene says more of its rate than the network, so that there is less to correct
        assert others[-1] == pytest.approx(-np.log(0.95), abs=0.003) and max(others) == others[-1]


def test_levels_are_bounded_and_those_of_an_earlier_training_forgotten():
    cells = cells_of(1.0, n=200)
    module = make(head="poisson")
    module.denoiser.gene_means.copy_(cells["x0"].mean(0))
    module.denoiser.backbone.decoder.mean.bias.data.fill_(-0.5)
    level(module, **cells)
    once = module.denoiser.log_levels.clone()
    level(module, **cells)
    assert torch.equal(module.denoiser.log_levels, once) and once[-1] == np.float32(LARGEST_LEVEL)
    module.denoiser.forget_corrections()
    assert not module.denoiser.log_levels.any()


def test_what_may_be_chance_is_no_level():
    """Sums of five cells that the network is right about are off by some percent, and two of three by less than one standard error.

    A standard error of the share, over 40 times five cells, is .07.
    """
    module = make(head="poisson")
    module.denoiser.gene_means.copy_(cells_of(1.0)["x0"].mean(0))
    left_alone = []
    for seed in range(40):
        level(module, **cells_of(1.0, n=5, seed=seed))
        left_alone.append(float((module.denoiser.log_levels == 0).float().mean()))
    assert np.mean(left_alone) > 2 / 3 - 0.2


def test_which_half_is_observed_hardly_matters():
    """Counts in the hundreds are observed or hidden, once each: levels depend little on the order of cells, which decides it."""
    cells = cells_of(1e6, n=200)
    cells["x0"][:5, 0] = 500.0
    module = make(head="poisson")
    module.denoiser.gene_means.copy_(cells["x0"].mean(0))
    found = []
    for shift in range(6):
        level(module, **{name: values.roll(shift, 0) for name, values in cells.items()})
        found.append(float(module.denoiser.log_levels[-1]))
    assert np.ptp(found) < 0.02  # with one half, four times as much


def test_the_paper_s_head_has_no_level():
    """Its mean is what the network says, and nothing is added to it."""
    module = make(head="softplus")
    level(module, **cells_of(1.0, n=20))
    assert not module.denoiser.log_levels.any()


class TestLaws:
    """Of heads whose laws are measured on validation cells: zeros are believed in few entries only."""

    @staticmethod
    def cells(theta, log_zero_odds, n=1500, seed=0):
        """Negative binomial counts whose zeros have other odds, and their means before that."""
        rng = np.random.default_rng(seed)
        means = np.linspace(3, 8, N_GENES)
        counts = rng.poisson(means * rng.gamma(theta, 1 / theta, (40, n, N_GENES)))
        counts = np.take_along_axis(counts, (counts > 0).argmax(0)[None], 0)[0]  # the first that is none
        none = (1 + means / theta) ** -theta
        odds = np.exp(log_zero_odds) * none / (1 - none)
        counts[rng.random(counts.shape) < odds / (1 + odds)] = 0
        x0 = torch.from_numpy(counts.astype(np.float32))
        nothing = torch.zeros(n, 0)
        return {"x0": x0, "missing": x0 < 0, "categories": nothing.long(), "continuous": nothing}, means

    @pytest.mark.parametrize("log_dispersion", [-0.9, 0.3])
    @pytest.mark.parametrize("log_zero_odds", [-1.5, 0.0])
    def test_finds_dispersion_and_odds_of_zeros(self, log_dispersion, log_zero_odds, monkeypatch):
        cells, means = self.cells(
            np.exp(1 + log_dispersion), log_zero_odds
        )  # the law starts from a log dispersion of 1
        monkeypatch.setattr(TruncatedNegativeBinomial, "scales_by_depth", False)  # cells differ in nothing
        module = make(head="truncated_nb", gene_max=np.full(N_GENES, np.inf))
        module.denoiser.gene_means.copy_(torch.from_numpy(means))
        calibrate(module, **cells)
        dispersion, odds = module.denoiser.log_calibration.tolist()
        # Dispersions that are tried are .3 from each other: the right one, or one beside. The odds are then those of as many
        # zeros as there are, some 200 at least in the cells that are looked at: with a standard error of .07 at most.
        assert abs(dispersion - log_dispersion) < 0.31
        none = (1 + means / np.exp(1 + dispersion)) ** -np.exp(1 + dispersion)
        shares = 1 / (1 + (1 / none - 1) * np.exp(-odds))
        seen = cells["x0"][:: len(cells["x0"]) // CALIBRATED_CELLS]
        assert shares.mean() == pytest.approx(float((seen == 0).double().mean()), rel=0.25)
        assert abs(odds - log_zero_odds) < 0.5

    def test_as_many_zeros_are_expected_as_there_are(self):
        """Half of the entries are seen, so that two standard errors of some hundred zeros are a fifth of them."""
        cells, means = self.cells(np.e, -1.0, n=CALIBRATED_CELLS)
        module = make(head="truncated_mixture")
        module.denoiser.gene_means.copy_(torch.from_numpy(means))
        calibrate(module, **cells)
        x = cells["x0"]
        status = (torch.rand(x.shape, generator=torch.Generator().manual_seed(3)) < 0.5).float()
        denoise = module.denoise_with(cells["categories"], cells["continuous"])
        with torch.no_grad():
            law = denoise(x * status, status, torch.ones(len(x)), torch.zeros(len(x), dtype=torch.bool))
        hidden = status == 0
        expected, found = law.log_zero.exp()[hidden].sum(), (x[hidden] == 0).sum()
        assert float(expected) == pytest.approx(float(found), rel=0.2)

    @pytest.mark.parametrize("zeros, expected", [(0.0, -LARGEST_ZERO_ODDS), (1.0, LARGEST_ZERO_ODDS)])
    def test_odds_of_zeros_are_bounded(self, zeros, expected):
        """Where there are none, or nothing else."""
        cells, means = self.cells(np.e, 0.0, n=50)
        cells["x0"] = cells["x0"].clamp_min(1) * (1 - zeros)
        module = make(head="truncated_nb")
        module.denoiser.gene_means.copy_(torch.from_numpy(means))
        calibrate(module, **cells)
        assert module.denoiser.log_calibration[1] == expected

    def test_makes_validation_cells_likelier_and_the_same_each_time(self):
        cells, _ = self.cells(1.0, -1.5, n=300)
        module = make(head="truncated_mixture")

        def loss() -> float:
            generator = torch.Generator().manual_seed(5)
            drawn = module.inference(**cells, generator=generator)
            return float(module.loss(None, drawn, module.generative(**drawn)).loss)

        with torch.no_grad():
            before = loss()
            calibrate(module, **cells)
            first = module.denoiser.log_calibration.clone()
            assert loss() < before
            calibrate(module, **cells)
        torch.testing.assert_close(module.denoiser.log_calibration, first, rtol=0, atol=0)

    def test_other_heads_have_none(self):
        assert make(head="nb_mixture").denoiser.log_calibration is None

    def test_is_forgotten_before_the_next_training(self):
        module = make(head="truncated_nb")
        module.denoiser.log_calibration.fill_(1.0)
        module.denoiser.forget_corrections()
        assert module.denoiser.log_calibration.tolist() == [0, 0]

    def test_as_many_cells_tell_where_few_fit_in_memory(self, monkeypatch):
        cells, means = self.cells(1.0, -1.0)
        module, found = make(head="truncated_nb"), []
        module.denoiser.gene_means.copy_(torch.from_numpy(means))
        for together in (1000, 40):
            monkeypatch.setattr("sccountsdiff.calibration.CELLS_TOGETHER", together)
            calibrate(module, **cells)
            found.append(module.denoiser.log_calibration.clone())
        # 40 cells alone tell the odds of a zero to within some tenths.
        torch.testing.assert_close(found[0], found[1], rtol=0, atol=0.1)

    def test_cells_are_taken_from_everywhere(self):
        """Cells of one batch stand together: the first of them alone would say something else."""
        cells, _ = self.cells(1.0, -1.5, n=CALIBRATED_CELLS)
        more = {key: torch.cat([torch.zeros_like(value), value]) for key, value in cells.items()}
        more["missing"][:CALIBRATED_CELLS] = True  # nothing is known of the first half
        module = make(head="truncated_nb")
        calibrate(module, **more)
        assert module.denoiser.log_calibration[1] < 0
