"""The denoiser starts as the best linear guess, stays within bounds, and has the paper's size."""

import diffusers
import pytest
import torch
from torch import nn

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


AUTHORS_UNET = {"block_out_channels": (128, 256, 256, 256), "dropout": 0.1}
"""What the paper's code passes to diffusers for all models; the rest are diffusers' defaults."""


@pytest.mark.parametrize(
    ("name", "size", "blocks", "millions"),
    [
        ("cifar10_cosine", 32, 4, None),
        ("cifar10_unconditional", 32, 4, None),
        ("cifar10_fisher", 32, 2, None),
        ("cifar10_fisher_unconditional", 32, 2, None),
        ("cifar10_blackout", 32, 2, None),
        ("celeba", 64, 4, 60),  # the paper's "60M"
        ("celeba_30m", 64, 2, None),  # "30M" in the paper: its code has 36
        ("celeba_30m_fisher", 64, 2, None),
    ],
)
def test_full_size_networks_are_the_authors(name, size, blocks, millions):
    attends = [size // 2**level == 16 for level in range(4)]
    config, is_celeba = CONFIGS[name], "celeba" in name
    with torch.device("meta"):
        moments = torch.ones(3, size, size), torch.ones(3, size, size)
        names = tuple(map(str, range(40 if is_celeba else 10)))
        model = ImageDiffusion(config, *moments, 255, names, is_celeba)
        theirs = diffusers.UNet2DModel(
            **AUTHORS_UNET,
            layers_per_block=blocks,
            class_embed_type="identity" if config.conditional else None,
            down_block_types=["AttnDownBlock2D" if attend else "DownBlock2D" for attend in attends],
            up_block_types=["AttnUpBlock2D" if attend else "UpBlock2D" for attend in reversed(attends)],
        )
        embedder = nn.Embedding(10, 512)
        if is_celeba:
            embedder = nn.Sequential(nn.Linear(40, 512), nn.SiLU(), nn.Linear(512, 512))
    shapes = lambda module: {name: tuple(value.shape) for name, value in module.state_dict().items()}
    assert shapes(model.network.unet) == shapes(theirs)
    settings = (
        "norm_num_groups",
        "attention_head_dim",
        "norm_eps",
        "act_fn",
        "time_embedding_type",
        "downsample_padding",
    )
    assert all(model.network.unet.config[key] == theirs.config[key] for key in settings)
    n_theirs = sum(p.numel() for p in theirs.parameters())
    n_theirs += sum(p.numel() for p in embedder.parameters()) if config.conditional else 0
    n_ours = sum(p.numel() for p in model.parameters())
    assert n_ours == n_theirs and (millions is None or n_ours / 1e6 == pytest.approx(millions, rel=0.1))


def test_paper_s_input_is_scaled_by_the_range_of_a_pixel():
    network = make("softplus", inputs="range")
    seen = []
    network.unet.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    t = torch.tensor([0.0, 0.5, 1.0])
    network(torch.full((3, 1, 8, 8), 4.0), t, torch.zeros(3), torch.zeros(3, dtype=torch.bool))
    expected = (4 - Cosine().survival(t).float() * 8) / 16
    torch.testing.assert_close(seen[0][:, 0, 0, 0], expected)


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
