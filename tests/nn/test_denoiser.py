"""What the network predicts before it has learned anything, and what may and may not move its prediction."""

from __future__ import annotations

import math

import pytest
import torch

from sccountsdiff.diffusion import MISSING, NOISED, OBSERVED, Cosine, count_loss, nb_loss
from sccountsdiff.nn import HEADS, MLP, CountsDenoiser


@pytest.mark.parametrize("head", ["poisson", "nb"])
def test_a_cell_of_which_nothing_is_seen_is_the_mean_cell(head, make_denoiser, predict, gene_means):
    nothing = {"x": torch.zeros(6, 8), "t": torch.ones(6)}
    for status in (NOISED, MISSING):
        found = predict(make_denoiser(head=head), status=torch.full((6, 8), status), **nothing)
        torch.testing.assert_close(found.mean, gene_means.expand(6, 8))


def test_prediction_scales_with_depth(backbone_name, make_denoiser, predict):
    denoiser = make_denoiser(backbone_name, "poisson")
    x = torch.zeros(6, 8)
    x[:, 0] = 90.0
    status = torch.zeros(6, 8)
    once = predict(denoiser, x=x, status=status)
    x[:, 0] = 190.0  # with the pseudo-count, twice as deep
    torch.testing.assert_close(predict(denoiser, x=x, status=status).mean, 2 * once.mean)


@pytest.mark.parametrize(
    ("outputs", "found"),
    [
        (torch.zeros(1, 6, 8), r"shape \(1, 6, 8\)"),
        (torch.zeros(2, 1, 8), r"shape \(2, 1, 8\)"),  # would broadcast
        (torch.zeros(6, 8, 2), r"shape \(6, 8, 2\)"),
        ((torch.zeros(6, 8), torch.zeros(6, 8)), "tuple"),
        (None, "NoneType"),
    ],
)
def test_outputs_of_another_shape_are_refused(outputs, found, make_denoiser, predict, given):
    expected = r"The backbone Given must return a tensor of shape \(2, 6, 8\) \(outputs, cells, genes\), not "
    with pytest.raises(ValueError, match=expected + found):
        predict(make_denoiser(given(outputs), "nb"))


def test_what_the_backbone_is_shown(make_denoiser, cells, predict, given, depth_factors):
    backbone = given(torch.zeros(2, 6, 8))
    predict(make_denoiser(backbone))
    values = torch.log1p(cells.x / depth_factors(cells))
    expected = torch.stack(
        [values * (cells.status == NOISED), values * (cells.status == OBSERVED), cells.status], dim=1
    )
    torch.testing.assert_close(backbone.channels, expected)
    assert backbone.tokens.shape == (6, 2 + 2 + 2, 4)  # time and depth, two categorical and two continuous covariates


def test_depth_is_told_to_the_backbone_of_the_softplus_head_too(make_denoiser, cells, predict, given):
    backbone = given(torch.zeros(1, 6, 8))
    denoiser = make_denoiser(backbone, "softplus")
    predict(denoiser)
    before = backbone.tokens
    found = predict(denoiser, x=cells.x * 10)
    assert (backbone.tokens != before)[:, 1].any(1).all()
    torch.testing.assert_close(found.mean, torch.full((6, 8), math.log(2)))  # but nothing is scaled by it


def test_depth_is_told_to_the_backbone(make_denoiser, cells, predict, given, depth_factors):
    denoiser = make_denoiser(given(torch.zeros(2, 6, 8)))
    told = []
    denoiser.conditioning.depth.register_forward_hook(lambda module, args, output: told.append(args[0]))
    predict(denoiser)
    totals = [torch.log1p((cells.x * (cells.status == which)).sum(1)) for which in (OBSERVED, NOISED)]
    expected = torch.stack([*totals, depth_factors(cells)[:, 0].log(), torch.zeros(6)], dim=1)
    torch.testing.assert_close(told[0], expected)


def test_a_thinned_cell_is_what_is_left_of_a_mean_cell(make_denoiser, predict, gene_means):
    """Of a cell of which nothing is seen, a third is expected if the network is told that a third was left."""
    denoiser = make_denoiser("mlp", "nb")
    kept, status = torch.full((6,), 1 / 3), torch.full((6, 8), NOISED)
    found = predict(denoiser, x=torch.zeros(6, 8), status=status, t=torch.ones(6), kept=kept)
    torch.testing.assert_close(found.mean, (gene_means / 3).expand(6, 8))


@pytest.mark.parametrize("head", ["poisson", "nb"])
def test_nothing_remains_at_the_start(backbone_name, head, make_denoiser, predict):
    denoiser = make_denoiser(backbone_name, head, perturb=True)
    intensities = []
    for t in (0.5, 1e-2, 1e-3, 1e-4, 1e-5):
        share = math.sin(math.pi / 2 * t) ** 2
        intensities.append(predict(denoiser, t=torch.full((6,), t)).mean / share)
    # y_hat / (1 - p) has a limit: it hardly changes any more, also where 1 - p is below what float32 resolves next to 1.
    torch.testing.assert_close(intensities[-1], intensities[-2], rtol=0.02, atol=0)
    assert not torch.allclose(intensities[0], intensities[-1], rtol=0.02)
    assert (predict(denoiser, t=torch.zeros(6)).mean < 1e-9).all()


@pytest.mark.parametrize("head", HEADS)
def test_covariates_matter_unless_left_out(backbone_name, head, make_denoiser, cells, predict):
    denoiser = make_denoiser(backbone_name, head, perturb=True)
    null = torch.ones(6, dtype=torch.bool)
    unconditional = predict(denoiser, null=null).log_mean
    others = [{"categories": (cells.categories + 1) % torch.tensor([3, 2])}, {"continuous": cells.continuous + 1}]
    for other in others:
        assert torch.equal(predict(denoiser, null=null, **other).log_mean, unconditional)
        changed = predict(denoiser, **other).log_mean - predict(denoiser).log_mean
        assert (changed.abs().amax(1) > 1e-4).all(), "each cell's prediction depends on its covariates"
    mixed = predict(denoiser, null=torch.arange(6) < 3).log_mean
    torch.testing.assert_close(mixed[:3], unconditional[:3])
    torch.testing.assert_close(mixed[3:], predict(denoiser).log_mean[3:])


def test_time_is_continuous(backbone_name, make_denoiser, cells, predict):
    outputs = []
    denoiser = make_denoiser(backbone_name, perturb=True).double()
    denoiser.backbone.register_forward_hook(lambda module, args, output: outputs.append(output))
    for name in ("x", "status", "continuous"):
        setattr(cells, name, getattr(cells, name).double())
    for t in (0.5, 0.50001):
        predict(denoiser, t=torch.full((6,), t, dtype=torch.float64))
    difference = (outputs[0] - outputs[1]).abs()
    assert (difference > 1e-9).all() and (difference < 1e-2).all()


@pytest.mark.parametrize("head", HEADS)
def test_missing_entries_hold_nothing(backbone_name, head, make_denoiser, cells, predict):
    denoiser = make_denoiser(backbone_name, head, perturb=True)
    stored = cells.x.masked_fill(cells.status == MISSING, 1000.0)
    assert torch.equal(predict(denoiser, x=stored).log_mean, predict(denoiser).log_mean)
    observed_instead = cells.status.masked_fill(cells.status == MISSING, OBSERVED)
    assert not torch.allclose(predict(denoiser, status=observed_instead).log_mean, predict(denoiser).log_mean)


def test_an_observed_zero_is_not_a_noised_one(backbone_name, make_denoiser, predict):
    denoiser = make_denoiser(backbone_name, "softplus", perturb=True)
    x = torch.zeros(6, 8)
    observed, noised = (predict(denoiser, x=x, status=torch.full((6, 8), s)).log_mean for s in (OBSERVED, NOISED))
    assert not torch.allclose(observed, noised)


def test_cells_do_not_see_each_other(backbone_name, make_denoiser, cells, predict):
    denoiser = make_denoiser(backbone_name, perturb=True)
    together = predict(denoiser).log_mean
    alone = denoiser(**{name: value[2:3] for name, value in vars(cells).items()}).log_mean
    torch.testing.assert_close(together[2:3], alone)


@pytest.mark.parametrize("head", HEADS)
def test_gradients_reach_every_parameter(backbone_name, head, make_denoiser, cells, predict, train_a_little):
    denoiser = make_denoiser(backbone_name, head).train()

    def loss():
        prediction = predict(denoiser)
        loss = count_loss(cells.x, prediction.log_mean)
        if head == "nb":
            loss = loss + nb_loss(cells.x, prediction.log_mean.detach(), prediction.log_dispersion)
        return loss.mean()

    # The last layer first, then the gates of the residual blocks, then all that lies behind them.
    train_a_little(denoiser, loss)
    loss().backward()
    for name, parameter in denoiser.named_parameters():
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name


def test_state_is_saved_whole(backbone_name, make_denoiser, predict):
    denoiser = make_denoiser(backbone_name, perturb=True)
    other = make_denoiser(backbone_name, gene_means=torch.ones(8))
    other.load_state_dict(denoiser.state_dict())
    assert torch.equal(predict(other).log_mean, predict(denoiser).log_mean)


def test_gene_means_are_those_of_cells_of_one_depth():
    """Half of the genes are measured only in cells of twice the depth: their mean is twice too high at first."""
    draw = torch.Generator().manual_seed(0)
    rates = torch.rand(40, generator=draw) * 10 + 1
    depth = torch.ones(2000, 1)
    depth[::2] = 2
    counts = torch.poisson(depth * rates, generator=draw)
    missing = torch.zeros(counts.shape, dtype=torch.bool)
    missing[1::2, 20:] = True
    counts = counts.masked_fill(missing, 0)
    means = counts.sum(0) / (~missing).sum(0)
    denoiser = CountsDenoiser(MLP(40, 2), means, Cosine(), n_factors=2)
    assert float(means[20:].mean() / means[:20].mean() / (rates[20:].mean() / rates[:20].mean())) > 1.2
    denoiser.fit(counts, missing)
    relative = denoiser.gene_means / rates
    # The standard error of a mean of 1,000 counts above 1 is at most 3 %; depths and pseudo-counts add less than that.
    assert (relative / relative.mean() - 1).abs().max() < 0.12
    assert abs(float(relative.mean()) - 1.5) < 0.05  # the mean cell has one and a half times these rates


def test_depths_are_found_through_few_genes_that_all_cells_have():
    """Two panels, in cells of one and three times the depth, that have a twentieth of their genes in common."""
    draw = torch.Generator().manual_seed(0)
    depth = torch.where(torch.arange(1000)[:, None] % 2 == 0, 1.0, 3.0)
    counts = torch.poisson(depth * torch.full((1000, 100), 20.0), generator=draw)
    genes = torch.arange(100)
    missing = torch.where(depth == 1, genes >= 52, genes < 47)
    counts = counts.masked_fill(missing, 0)
    denoiser = CountsDenoiser(MLP(100, 2), counts.sum(0) / (~missing).sum(0), Cosine())
    denoiser.fit(counts, missing)
    ratio = denoiser.gene_means[52:].mean() / denoiser.gene_means[:47].mean()
    assert abs(float(ratio) - 1) < 0.05  # it was 3


def test_gene_means_of_complete_data_stay():
    counts = torch.poisson(torch.full((50, 6), 3.0), generator=torch.Generator().manual_seed(0))
    denoiser = CountsDenoiser(MLP(6, 2), counts.mean(0), Cosine(), n_factors=2)
    denoiser.fit(counts, torch.zeros(counts.shape, dtype=torch.bool))
    assert torch.equal(denoiser.gene_means, counts.mean(0))


def test_like_genes_have_like_directions():
    """Two groups of genes with the same means, each moved by a factor of its own."""
    draw = torch.Generator().manual_seed(0)
    moved = torch.randn(500, 2, generator=draw).repeat_interleave(3, 1)
    counts = torch.poisson(20 * torch.exp(0.5 * moved), generator=draw)
    denoiser = CountsDenoiser(MLP(6, 2), torch.full((6,), 20.0), Cosine(), n_factors=2)
    denoiser.fit(counts, torch.zeros(counts.shape, dtype=torch.bool))
    directions = denoiser.gene_directions
    cosines = directions @ directions.T
    same = torch.eye(2).repeat_interleave(3, 0).repeat_interleave(3, 1) > 0
    torch.testing.assert_close(cosines.diagonal(), torch.ones(6))
    assert cosines[same].min() > 0.7 and cosines[~same].max() < 0.5
    assert CountsDenoiser(MLP(6, 2), torch.ones(6), Cosine()).gene_directions is None
    loaded = CountsDenoiser(MLP(6, 2), torch.ones(6), Cosine(), n_factors=2)
    loaded.load_state_dict(denoiser.state_dict())
    assert torch.equal(loaded.gene_directions, directions)


class TestGroups:
    """Two groups of genes, the first five and the last three."""

    GROUPS = torch.tensor([0, 0, 0, 0, 0, 1, 1, 1])

    @pytest.fixture
    def denoiser(self, gene_means):
        torch.manual_seed(0)
        return CountsDenoiser(MLP(8, 2, n_hidden=4), gene_means, Cosine(), "nb", gene_groups=self.GROUPS)

    def test_what_was_measured_of_an_earlier_training_is_forgotten(self, denoiser):
        measured = [denoiser.log_levels, denoiser.group_depth.log_level, denoiser.group_depth.log_dispersion]
        for values in measured:
            values.fill_(0.5)
        denoiser.forget_corrections()
        assert not torch.cat([values.flatten() for values in measured]).any()

    @staticmethod
    def ask(denoiser, x, status, t=1.0):
        nothing, times = torch.zeros(len(x), 0), torch.full((len(x),), t)
        return denoiser(x, status, times, nothing.long(), nothing, torch.zeros(len(x), dtype=torch.bool))

    def test_prediction_scales_with_the_depth_of_the_group(self, denoiser, gene_means):
        status = torch.full((1, 8), NOISED)
        status[:, [0, 7]] = OBSERVED
        x = torch.zeros(1, 8)
        x[0, 0], x[0, 7] = 3e5 * gene_means[0], 5e5 * gene_means[7]
        # So many counts outweigh what cells are like; means as large make them plausible.
        denoiser.gene_means.mul_(1e5)
        ratio = self.ask(denoiser, x, status).mean[0] / denoiser.gene_means
        torch.testing.assert_close(ratio, torch.tensor([3.0] * 5 + [5.0] * 3), rtol=1e-3, atol=0)

    def test_the_network_is_told_of_each(self, denoiser, gene_means):
        told = []
        denoiser.conditioning.depth.register_forward_hook(lambda module, args, output: told.append(args[0]))
        x = torch.arange(8.0)[None]
        self.ask(denoiser, x, torch.tensor([[OBSERVED, NOISED] * 4]), t=0.5)
        expected = torch.log1p(torch.tensor([0.0 + 2 + 4, 6, 1 + 3, 5 + 7]))
        torch.testing.assert_close(told[0][0, :4], expected)
        assert told[0].shape == (1, 3 * 2 + 1)

    def test_totals(self, denoiser, make_denoiser):
        values = torch.arange(16.0).reshape(2, 8)
        torch.testing.assert_close(make_denoiser().totals(values), values.sum(1, keepdim=True))
        expected = torch.tensor([[10.0] * 5 + [18.0] * 3, [50.0] * 5 + [42.0] * 3])
        torch.testing.assert_close(denoiser.totals(values), expected)

    def test_means_are_fitted_to_the_cells_that_have_the_group(self, denoiser):
        """Cells without the second group say nothing of it, however deep they are in the first."""
        torch.manual_seed(1)
        counts = torch.poisson(torch.full((400, 8), 20.0))
        counts[:200] *= 5
        missing = torch.zeros(400, 8, dtype=torch.bool)
        missing[:200, 5:] = True
        counts[missing] = 0
        denoiser.gene_means.copy_(counts.sum(0) / (~missing).sum(0))
        before = denoiser.gene_means.clone()
        denoiser.fit(counts, missing)
        torch.testing.assert_close(denoiser.gene_means, before, rtol=1e-3, atol=0)
        assert denoiser.group_depth.covariance[0, 0] > 0.3 > denoiser.group_depth.covariance[1, 1]


@pytest.mark.parametrize("copies", [1, 2])
def test_what_stays_the_same_along_a_chain_is_computed_once(copies, cells, perturb):
    """The observed entries are given beforehand; time, noised counts and depth change, and nothing in the prediction."""
    torch.manual_seed(0)
    denoiser = CountsDenoiser(MLP(8, 2, 16), torch.full((8,), 5.0), Cosine(), "nb", (3, 2), 2, n_factors=2)
    denoiser.fit(torch.poisson(torch.rand(40, 8) * 20), torch.zeros(40, 8, dtype=torch.bool))
    perturb(denoiser).eval()
    context = denoiser.context(cells.categories, cells.continuous, cells.x, cells.status).repeat(copies)
    assert len(context) == copies * len(cells.x)
    for t, noised in [(1.0, 0.0), (0.4, 3.0)]:
        x = torch.where(cells.status == NOISED, noised, cells.x)
        repeated = {name: torch.cat([value] * copies) for name, value in vars(cells).items()}
        repeated |= {"x": torch.cat([x] * copies), "t": torch.full((copies * 6,), t)}
        expected = denoiser(**repeated)
        found = denoiser.predict(repeated["x"], repeated["status"], repeated["t"], context, repeated["null"])
        torch.testing.assert_close(found.log_mean, expected.log_mean)
        torch.testing.assert_close(found.log_dispersion, expected.log_dispersion)


def test_at_the_last_time_nothing_is_made_of_what_is_noised(make_denoiser, cells, predict, perturb, monkeypatch):
    """Of which nothing is left; it takes another way if nobody sees that, as on a GPU."""
    denoiser = perturb(make_denoiser(head="nb")).eval()
    last = {"x": cells.x * (cells.status == OBSERVED), "t": torch.ones(6)}
    found = predict(denoiser, **last)
    monkeypatch.setattr("sccountsdiff.nn.denoiser.host_sees", lambda values: False)
    expected = predict(denoiser, **last)
    torch.testing.assert_close(found.log_mean, expected.log_mean)
    torch.testing.assert_close(found.log_dispersion, expected.log_dispersion)
