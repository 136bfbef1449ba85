"""The denoiser starts as the best linear guess, stays within bounds, and has the paper's size."""

import pytest
import torch

from sccountsdiff.benchmark.images import CONFIGS, ImageDenoiser, ImageDiffusion, load_config
from sccountsdiff.benchmark.images.network import IMAGE_HEADS, ShareHead, linear_guess
from sccountsdiff.diffusion import Cosine, thin

MEAN, VARIANCE = torch.full((1, 8, 8), 5.0), torch.full((1, 8, 8), 12.0)


def make(head="share", **kwargs):
    torch.manual_seed(0)
    options = {"n_conditions": 3, "channels": (8, 8), "dropout": 0.0, "head": head} | kwargs
    return ImageDenoiser(MEAN, VARIANCE, 16, Cosine(), **options).eval()


def test_untrained_network_is_the_linear_guess():
    x = torch.randint(0, 4, (2, 1, 8, 8)).float()
    t = torch.tensor([0.4, 0.7])
    y = make()(x, t, torch.tensor([0, 1]), torch.tensor([False, True])).mean
    p = Cosine().survival(t).float()[:, None, None, None]
    torch.testing.assert_close(y, linear_guess(x, p, MEAN, VARIANCE), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("t", [1e-4, 0.01, 0.5, 0.999, 1.0])
def test_predictions_stay_between_nothing_and_what_fits(t):
    network = make()
    torch.nn.init.normal_(network.unet.conv_out.weight, std=5.0)
    x = torch.arange(17.0).repeat(4)[:64].reshape(1, 1, 8, 8)
    y = network(x, torch.tensor([t]), torch.tensor([0]), torch.tensor([False])).mean
    assert torch.isfinite(y).all() and (y > 0).all() and (y <= (16 - x).clamp_min(1e-3) * 1.00001).all()


@pytest.mark.parametrize("multi_label", [False, True])
def test_null_condition_hides_the_condition_and_only_the_condition(multi_label):
    network = make("softplus", multi_label=multi_label)
    x, t = torch.zeros(2, 1, 8, 8), torch.full((2,), 0.5)
    conditions = torch.tensor([[1, 0, 0], [0, 1, 1]]) if multi_label else torch.tensor([0, 2])
    hidden = network(x, t, conditions, torch.tensor([True, True])).log_mean
    shown = network(x, t, conditions, torch.tensor([False, False])).log_mean
    torch.testing.assert_close(hidden[0], hidden[1])
    assert (shown[0] - shown[1]).abs().max() > 1e-4
    assert (shown[0] - hidden[0]).abs().max() > 1e-4


def test_paper_s_head_is_a_softplus():
    network = make("softplus")
    x, t = torch.ones(1, 1, 8, 8), torch.tensor([0.5])
    seen = []
    network.unet.register_forward_hook(lambda module, inputs, output: seen.append(output.sample))
    y = network(x, t, torch.tensor([0]), torch.tensor([False])).mean
    torch.testing.assert_close(y, torch.nn.functional.softplus(seen[0]))


def test_input_is_standardised_with_the_survival_probability():
    """Whatever the time, thinned images come in with mean 0 and variance 1, less near the end of the noising."""
    network = make()
    seen = []
    network.unet.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    generator = torch.Generator().manual_seed(0)
    size = MEAN[0, 0, 0] ** 2 / (VARIANCE[0, 0, 0] - MEAN[0, 0, 0])  # a negative binomial with these moments
    rate = torch._standard_gamma(size.expand(400, 1, 8, 8), generator=generator) * MEAN / size
    x0 = torch.poisson(rate, generator=generator)
    for t in (0.1, 0.5):
        times = torch.full((400,), t)
        p = Cosine().survival(times).float()[:, None, None, None]
        network(thin(x0, p, generator), times, torch.zeros(400), torch.zeros(400, dtype=torch.bool))
        variance = p[0].item() * (1 - p[0].item()) * 5 + p[0].item() ** 2 * 12
        assert abs(seen[-1].mean().item()) < 0.05
        assert seen[-1].var().item() == pytest.approx(variance / (variance + 1), rel=0.05)


@pytest.mark.parametrize(
    ("name", "size", "millions", "attention"),
    [
        ("cifar10_cosine", 32, 35.7, 1),
        ("cifar10_fisher", 32, 35.7, 1),
        ("cifar10_unconditional", 32, 35.7, 1),
        ("cifar10_blackout", 32, 35.7, 1),
        ("cifar10_deep", 32, 58.7, 1),
        ("celeba_30m", 64, 36.0, 2),
        ("celeba", 64, 59.0, 2),
    ],
)
def test_full_size_networks_have_the_paper_s_size_and_attend_at_16(name, size, millions, attention):
    with torch.device("meta"):
        moments = torch.ones(3, size, size), torch.ones(3, size, size)
        names = tuple(map(str, range(40 if "celeba" in name else 10)))
        model = ImageDiffusion(CONFIGS[name], *moments, 255, names, "celeba" in name)
    assert sum(p.numel() for p in model.parameters()) / 1e6 == pytest.approx(millions, abs=0.1)
    blocks = [type(block).__name__ for block in model.network.unet.down_blocks]
    assert [block.startswith("Attn") for block in blocks] == [level == attention for level in range(4)]


def test_wrong_sizes_and_heads_are_named():
    with pytest.raises(ValueError, match="cannot be halved 4 times"):
        make(channels=(8,) * 5)
    with pytest.raises(KeyError, match="share, softplus"):
        make("tanh")
    with pytest.raises(KeyError, match="share, softplus"):
        load_config("digits", head="tanh")


def test_linear_guess_is_the_regression_on_the_same_pixel(digits):
    """Against least squares on drawn pairs."""
    x0 = torch.stack([digits.train[i][0] for i in range(1500)]).float()[:, 0, 3, 4].repeat(40)
    p = torch.tensor(0.3)
    xt = thin(x0, p, torch.Generator().manual_seed(0))
    design = torch.stack([torch.ones_like(xt), xt], 1)
    fit = design @ torch.linalg.lstsq(design, (x0 - xt)[:, None]).solution
    guess = linear_guess(xt, p, x0.mean(), x0.var(correction=0))
    assert (guess - fit[:, 0]).abs().max() < 0.1
    assert ((guess - (x0 - xt)) ** 2).mean() < 1.001 * ((fit[:, 0] - (x0 - xt)) ** 2).mean()


@pytest.mark.parametrize("name", IMAGE_HEADS.names())
def test_every_head_predicts_positive_counts_for_any_output(name):
    output, x = torch.linspace(-40, 40, 17), torch.arange(17.0)
    p = torch.tensor(0.3)
    y = IMAGE_HEADS[name]()(output, x, p, linear_guess(x, p, torch.tensor(5.0), torch.tensor(12.0)), 16).mean
    assert torch.isfinite(y).all() and (y > 0).all()


def test_a_share_of_what_fits_rises_with_the_output_and_starts_at_the_linear_guess():
    x, p = torch.tensor([3.0]), torch.tensor(0.3)
    predict = lambda output: ShareHead()(torch.tensor([output]), x, p, torch.tensor([4.0]), 16).mean.item()
    assert predict(-2.0) < predict(0.0) < predict(2.0) < predict(50.0) <= 13.0001
    assert predict(0.0) == pytest.approx(4.0, rel=1e-5)
