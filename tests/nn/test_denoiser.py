"""What the network predicts before it has learned anything, and what may and may not move its prediction."""

import math

import pytest
import torch
from torch.nn import functional as F

from sccountsdiff.diffusion import MISSING, NOISED, OBSERVED, Cosine, Fisher, count_loss, nb_loss
from sccountsdiff.nn import HEADS, Backbone, CountsDenoiser

PSEUDO = 10.0


class Given(Backbone):
    """A backbone whose outputs are given, and which remembers what it was shown."""

    def __init__(self, outputs):
        super().__init__()
        self.n_hidden = 4
        self.outputs = outputs

    def forward(self, channels, tokens):
        self.channels, self.tokens = channels, tokens
        return self.outputs


def depth_factor(cells, gene_means, schedule=Cosine()) -> list[float]:
    """Design 3.2, cell by cell: counts seen over counts that a mean cell would show, both plus ten."""
    factors = []
    for x, status, t in zip(cells.x.tolist(), cells.status.tolist(), cells.t.tolist(), strict=True):
        p = schedule.survival(t).item()
        share = {OBSERVED: 1.0, NOISED: p, MISSING: 0.0}
        seen = sum(count for count, s in zip(x, status, strict=True) if s != MISSING)
        expected = sum(share[s] * mean for s, mean in zip(status, gene_means.tolist(), strict=True))
        factors.append((seen + PSEUDO) / (expected + PSEUDO))
    return factors


def lost(t: torch.Tensor, schedule=Cosine()) -> torch.Tensor:
    return 1 - schedule.survival(t)[:, None]


# Before training ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", [Cosine(), Fisher()], ids=repr)
def test_untrained_poisson_is_the_depth_scaled_mean(backbone_name, schedule, make_denoiser, cells, predict, gene_means):
    found = predict(make_denoiser(backbone_name, "poisson", schedule))
    factor = torch.tensor(depth_factor(cells, gene_means, schedule))[:, None]
    expected = lost(cells.t, schedule) * factor * gene_means
    torch.testing.assert_close(found.mean.double(), expected, rtol=1e-4, atol=0)
    assert found.log_dispersion is None


def test_untrained_nb_is_the_conjugate_posterior(backbone_name, make_denoiser, cells, predict, gene_means):
    found = predict(make_denoiser(backbone_name, "nb"))
    mu = torch.tensor(depth_factor(cells, gene_means))[:, None] * gene_means
    theta = math.exp(1.0)
    noised = cells.status == NOISED
    # The prior Gamma(theta, theta / mu) where the count is hidden; p-thinned counts of a gene add x and p to it.
    shape = torch.where(noised, theta + cells.x, theta)
    rate = theta / mu + torch.where(noised, 1 - lost(cells.t), 0.0)
    torch.testing.assert_close(found.mean.double(), lost(cells.t) * shape / rate, rtol=1e-4, atol=0)
    torch.testing.assert_close(found.log_dispersion.exp(), shape, rtol=1e-4, atol=0)


def test_untrained_nb_at_the_last_time_is_the_prior(backbone_name, make_denoiser, cells, predict, gene_means):
    cells.x, cells.t = cells.x * (cells.status == OBSERVED), torch.ones(6)
    found = predict(make_denoiser(backbone_name, "nb"))
    mu = torch.tensor(depth_factor(cells, gene_means))[:, None] * gene_means
    torch.testing.assert_close(found.mean, mu, rtol=1e-4, atol=0)
    torch.testing.assert_close(found.log_dispersion, torch.ones(6, 8))


def test_untrained_softplus_knows_nothing(backbone_name, make_denoiser, predict):
    found = predict(make_denoiser(backbone_name, "softplus"))
    torch.testing.assert_close(found.mean, torch.full((6, 8), math.log(2)))
    assert found.log_dispersion is None


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


# The formulas with a network behind them ----------------------------------------------------------------------------


@pytest.mark.parametrize("head", HEADS)
def test_heads(head, make_denoiser, cells, predict, gene_means):
    outputs = torch.randn(CountsDenoiser.n_outputs(head), 6, 8, generator=torch.Generator().manual_seed(3))
    found = predict(make_denoiser(Given(outputs), head))
    mu = torch.tensor(depth_factor(cells, gene_means))[:, None] * gene_means * outputs[0].exp()
    if head == "softplus":
        torch.testing.assert_close(found.mean, F.softplus(outputs[0]))
    elif head == "poisson":
        torch.testing.assert_close(found.mean.double(), lost(cells.t) * mu, rtol=1e-4, atol=0)
    else:
        theta, noised = (1 + outputs[1]).exp(), cells.status == NOISED
        shape = theta + cells.x * noised
        expected = lost(cells.t) * shape / (theta / mu + (1 - lost(cells.t)) * noised)
        torch.testing.assert_close(found.mean.double(), expected, rtol=1e-4, atol=0)
        torch.testing.assert_close(found.log_dispersion, shape.log())


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
def test_outputs_of_another_shape_are_refused(outputs, found, make_denoiser, predict):
    expected = r"The backbone Given must return a tensor of shape \(2, 6, 8\) \(outputs, cells, genes\), not "
    with pytest.raises(ValueError, match=expected + found):
        predict(make_denoiser(Given(outputs), "nb"))


def test_what_the_backbone_is_shown(make_denoiser, cells, predict, gene_means):
    backbone = Given(torch.zeros(2, 6, 8))
    predict(make_denoiser(backbone))
    values = torch.log1p(cells.x / torch.tensor(depth_factor(cells, gene_means))[:, None])
    expected = torch.stack(
        [values * (cells.status == NOISED), values * (cells.status == OBSERVED), cells.status], dim=1
    )
    torch.testing.assert_close(backbone.channels, expected)
    assert backbone.tokens.shape == (6, 2 + 2 + 2, 4)  # time and depth, two categorical and two continuous covariates


def test_depth_is_told_to_the_backbone_of_the_softplus_head_too(make_denoiser, cells, predict):
    backbone = Given(torch.zeros(1, 6, 8))
    denoiser = make_denoiser(backbone, "softplus")
    predict(denoiser)
    before = backbone.tokens
    found = predict(denoiser, x=cells.x * 10)
    assert (backbone.tokens != before)[:, 1].any(1).all()
    torch.testing.assert_close(found.mean, torch.full((6, 8), math.log(2)))  # but nothing is scaled by it


def test_depth_is_told_to_the_backbone(make_denoiser, cells, predict, gene_means):
    denoiser = make_denoiser(Given(torch.zeros(2, 6, 8)))
    told = []
    denoiser.conditioning.depth.register_forward_hook(lambda module, args, output: told.append(args[0]))
    predict(denoiser)
    totals = [torch.log1p((cells.x * (cells.status == which)).sum(1)) for which in (OBSERVED, NOISED)]
    expected = torch.stack([*totals, torch.tensor(depth_factor(cells, gene_means)).log()], dim=1)
    torch.testing.assert_close(told[0], expected)


# What may move a prediction -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("head", ["poisson", "nb"])
def test_nothing_remains_at_the_start(backbone_name, head, make_denoiser, predict):
    denoiser = make_denoiser(backbone_name, head, perturb=True)
    intensities = []
    for t in (0.5, 1e-2, 1e-3, 1e-4):
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
def test_absent_entries_hold_nothing(backbone_name, head, make_denoiser, cells, predict):
    denoiser = make_denoiser(backbone_name, head, perturb=True)
    stored = cells.x.masked_fill(cells.status == MISSING, 1000.0)
    assert torch.equal(predict(denoiser, x=stored).log_mean, predict(denoiser).log_mean)
    known_instead = cells.status.masked_fill(cells.status == MISSING, OBSERVED)
    assert not torch.allclose(predict(denoiser, status=known_instead).log_mean, predict(denoiser).log_mean)


def test_a_known_zero_is_not_a_hidden_one(backbone_name, make_denoiser, predict):
    denoiser = make_denoiser(backbone_name, "softplus", perturb=True)
    x = torch.zeros(6, 8)
    known, hidden = (predict(denoiser, x=x, status=torch.full((6, 8), s)).log_mean for s in (OBSERVED, NOISED))
    assert not torch.allclose(known, hidden)


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


def test_genes_have_no_order_for_the_transformer(make_denoiser, cells, predict, gene_means):
    order = torch.tensor([3, 0, 7, 5, 1, 6, 2, 4])
    denoiser = make_denoiser("transformer", perturb=True)
    permuted = make_denoiser("transformer", perturb=True, gene_means=gene_means[order])
    permuted.backbone.genes.data = denoiser.backbone.genes.data[order]
    before, after = predict(denoiser), predict(permuted, x=cells.x[:, order], status=cells.status[:, order])
    torch.testing.assert_close(after.log_mean, before.log_mean[:, order])
    torch.testing.assert_close(after.log_dispersion, before.log_dispersion[:, order])
    assert not torch.allclose(after.log_mean, before.log_mean)


def test_state_is_saved_whole(backbone_name, make_denoiser, predict):
    denoiser = make_denoiser(backbone_name, perturb=True)
    other = make_denoiser(backbone_name, gene_means=torch.ones(8))
    other.load_state_dict(denoiser.state_dict())
    assert torch.equal(predict(other).log_mean, predict(denoiser).log_mean)


def test_outputs_asked_of_the_backbone():
    assert {head: CountsDenoiser.n_outputs(head) for head in HEADS} == {"softplus": 1, "poisson": 1, "nb": 2}
    with pytest.raises(ValueError, match="`head` must be one of softplus, poisson, nb, not 'gauss'"):
        CountsDenoiser.n_outputs("gauss")
