"""Heads give positive counts; the linear prediction is the regression on the same pixel."""

import pytest
import torch

from sccountsdiff.benchmark.images.heads import IMAGE_HEADS, ShareHead, linear_guess
from sccountsdiff.diffusion import thin


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
