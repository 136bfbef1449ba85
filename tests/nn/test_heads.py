"""Each head says of the remaining counts what its law says, and users bring their own."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from torch.nn import functional as F

from sccountsdiff import CountsDiffImputer
from sccountsdiff.diffusion import NOISED, OBSERVED, Cosine, Fisher, Prediction, count_loss, nb_loss
from sccountsdiff.nn import HEADS, Head, NegativeBinomial, Poisson, Softplus, get_head, register_head

N_HEADS = 7
"""Heads of the package, which are registered before those of tests."""

BUILT_IN = {"nb": NegativeBinomial, "poisson": Poisson, "softplus": Softplus}


def lost(t: torch.Tensor, schedule=Cosine()) -> torch.Tensor:
    return 1 - schedule.survival(t)[:, None]


class Capped(Head):
    """A user's head: at most so many counts remain of a gene."""

    n_outputs = 2
    rounding = "nearest"

    def predict(self, outputs, given):
        cap = outputs[1] + 3
        return Prediction(given.log_lost + torch.minimum(given.log_mean + outputs[0], cap))


# What is known of a gene, and what follows --------------------------------------------------------------------------


def test_nb_is_bayes_rule(given_input):
    """Rates from the prior, weighted by how likely they make the noised count: no conjugacy is used here."""
    outputs = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = NegativeBinomial().predict(outputs, given_input)
    for place in np.ndindex(4, 3):
        mu = math.exp(given_input.log_mean[place] + outputs[(0, *place)])
        theta, p, x = math.exp(1 + outputs[(1, *place)]), float(given_input.p[place]), int(given_input.xt[place])
        rates = np.geomspace(1e-9, 1e4, 20_000)
        weights = stats.gamma(theta, scale=mu / theta).pdf(rates) * stats.poisson.pmf(x, p * rates) * rates
        weights /= weights.sum()
        remaining = (1 - p) * rates
        mean = (weights * remaining).sum()
        assert float(found.mean[place]) == pytest.approx(mean, rel=1e-3)
        # The variance of a Poisson number with that rate, and that of a negative binomial.
        variance = mean + (weights * (remaining - mean) ** 2).sum()
        dispersion = math.exp(found.log_dispersion[place])
        assert mean + mean**2 / dispersion == pytest.approx(variance, rel=1e-3)


def test_the_tail_of_nb_stays_within_the_counts_of_the_gene(given_input):
    """However small a dispersion the backbone asks for; the mean stays, and a wide range changes nothing."""
    outputs = torch.stack([torch.full((4, 3), 2.0), torch.full((4, 3), -9.0)]).double()
    largest = torch.tensor([1.0, 6.0, 200.0], dtype=torch.float64)
    last = replace(given_input, xt=torch.zeros(4, 3), p=torch.zeros(4, 3), log_lost=torch.zeros(4, 1))
    free, bounded, wide = (
        NegativeBinomial().predict(outputs, replace(last, largest=bound)) for bound in (math.inf, largest, 1e12)
    )
    length = bounded.mean / bounded.log_dispersion.exp()
    assert (length < largest / 4).all() and (free.mean / free.log_dispersion.exp() > largest).all()
    torch.testing.assert_close(bounded.mean, free.mean)
    torch.testing.assert_close(wide.log_dispersion, free.log_dispersion)


def test_poisson_does_not_look_at_the_noised_count(given_input):
    outputs = torch.randn(1, 4, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = Poisson().predict(outputs, given_input)
    torch.testing.assert_close(found.mean, (1 - given_input.p) * (given_input.log_mean + outputs[0]).exp())
    assert found.log_dispersion is None


def test_softplus_looks_at_nothing_but_the_network(given_input):
    outputs = torch.tensor([-200.0, 0.0, 3.0], dtype=torch.float64).expand(1, 4, 3)
    found = Softplus().predict(outputs, given_input)
    torch.testing.assert_close(found.mean, F.softplus(outputs[0]).clamp_min(1e-8))
    assert found.log_mean.isfinite().all()


def test_losses():
    y = torch.tensor([0.0, 2.0, 7.0])
    prediction = Prediction(torch.tensor([0.1, 0.5, 1.5], requires_grad=True), torch.tensor([0.3, 1.0, 2.0]))
    plain = count_loss(y, prediction.log_mean)
    for head in (Poisson(), Softplus(), Capped()):
        torch.testing.assert_close(head.loss(y, prediction), plain)
    with_law = NegativeBinomial().loss(y, prediction)
    torch.testing.assert_close(with_law, plain + nb_loss(y, prediction.log_mean, prediction.log_dispersion))


def test_the_dispersion_does_not_move_the_mean():
    y = torch.tensor([0.0, 2.0, 7.0])
    grads = []
    for head in (NegativeBinomial(), Poisson()):
        log_mean = torch.tensor([0.1, 0.5, 1.5], requires_grad=True)
        head.loss(y, Prediction(log_mean, torch.zeros(3))).sum().backward()
        grads.append(log_mean.grad)
    torch.testing.assert_close(*grads)


# Around a network ---------------------------------------------------------------------------------------------------


def test_untrained_nb_is_the_conjugate_posterior(
    backbone_name, make_denoiser, cells, predict, gene_means, depth_factors
):
    found = predict(make_denoiser(backbone_name, "nb"))
    mu = depth_factors(cells) * gene_means
    theta = math.exp(1.0)
    noised = cells.status == NOISED
    # The prior Gamma(theta, theta / mu) where the count is hidden; p-thinned counts of a gene add x and p to it.
    shape = torch.where(noised, theta + cells.x, theta)
    rate = theta / mu + torch.where(noised, 1 - lost(cells.t), 0.0)
    torch.testing.assert_close(found.mean.double(), lost(cells.t) * shape / rate, rtol=1e-4, atol=0)
    torch.testing.assert_close(found.log_dispersion.exp(), shape, rtol=1e-4, atol=0)


def test_untrained_nb_at_the_last_time_is_the_prior(
    backbone_name, make_denoiser, cells, predict, gene_means, depth_factors
):
    cells.x, cells.t = cells.x * (cells.status == OBSERVED), torch.ones(6)
    found = predict(make_denoiser(backbone_name, "nb"))
    torch.testing.assert_close(found.mean, depth_factors(cells) * gene_means, rtol=1e-4, atol=0)
    torch.testing.assert_close(found.log_dispersion, torch.ones(6, 8))


def test_untrained_softplus_knows_nothing(backbone_name, make_denoiser, predict):
    found = predict(make_denoiser(backbone_name, "softplus"))
    torch.testing.assert_close(found.mean, torch.full((6, 8), math.log(2)))
    assert found.log_dispersion is None


@pytest.mark.parametrize("schedule", [Cosine(), Fisher()], ids=repr)
def test_untrained_poisson_is_the_depth_scaled_mean(
    backbone_name, schedule, make_denoiser, cells, predict, gene_means, depth_factors
):
    found = predict(make_denoiser(backbone_name, "poisson", schedule))
    expected = lost(cells.t, schedule) * depth_factors(cells, schedule) * gene_means
    torch.testing.assert_close(found.mean.double(), expected, rtol=1e-4, atol=0)
    assert found.log_dispersion is None


@pytest.mark.parametrize("head", BUILT_IN)
def test_with_a_network_behind_them(head, make_denoiser, cells, predict, gene_means, depth_factors, given):
    outputs = torch.randn(get_head(head).n_outputs, 6, 8, generator=torch.Generator().manual_seed(3))
    found = predict(make_denoiser(given(outputs), head))
    mu = depth_factors(cells) * gene_means * outputs[0].exp()
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


@pytest.mark.parametrize("is_noised", [True, False])
@pytest.mark.parametrize("name", list(HEADS)[:N_HEADS])
def test_what_is_expected_is_the_mean_of_the_law(name, is_noised, given_input):
    """Also where a head has a faster way to it: if nothing of a gene is left that could tell one law from another."""
    head = get_head(name)
    outputs = torch.randn(head.n_outputs, 4, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    given = given_input if is_noised else replace(given_input, xt=torch.zeros(4, 3), p=torch.zeros(4, 3))
    law = head.law(outputs, given)
    torch.testing.assert_close(head.expect(outputs, given).mean, law.mean)
    if head.mean_is_first(given):  # and the others need not be there
        torch.testing.assert_close(head.expect(outputs[:1], given).mean, law.mean)


@pytest.mark.parametrize("name", ["nb", "nb_mixture"])
def test_the_first_output_is_the_mean_if_nothing_is_left_of_a_gene(name, given_input):
    head = get_head(name)
    assert not head.mean_is_first(given_input)
    assert head.mean_is_first(replace(given_input, xt=torch.zeros(4, 3), p=torch.zeros(4, 3)))


# By name, by class, or as they are ----------------------------------------------------------------------------------


def test_names_classes_and_heads():
    assert list(HEADS)[:5] == [*BUILT_IN, "gamma_mixture", "nb_mixture"]
    assert {name: get_head(name).n_outputs for name in BUILT_IN} == {"nb": 2, "poisson": 1, "softplus": 1}
    for name, kind in BUILT_IN.items():
        assert type(get_head(name)) is type(get_head(kind)) is kind
    mine = Capped()
    assert get_head(mine) is mine
    assert not Softplus.scales_by_depth and Poisson.scales_by_depth and NegativeBinomial.scales_by_depth


@pytest.mark.parametrize("wrong", [7, None, torch.nn.Linear])
def test_others_are_refused(wrong):
    with pytest.raises(TypeError, match="`head` must be a name or a Head, not "):
        get_head(wrong)
    with pytest.raises(KeyError, match="Unknown head 'poison'; did you mean 'poisson'?"):
        get_head("poison")


def test_a_head_must_predict():
    class Empty(Head):
        pass

    with pytest.raises(TypeError, match="abstract class Empty .*predict"):
        get_head(Empty)


@pytest.mark.parametrize("head", ["capped, for a test", Capped, Capped()], ids=["name", "class", "object"])
def test_a_head_of_one_s_own_trains_imputes_and_is_saved(simulate, train, tmp_path, head):
    assert register_head("capped, for a test")(Capped) is Capped
    adata = simulate(40).adata
    model = train(adata, 1, model_kwargs={"head": head})
    assert isinstance(model.module.denoiser.head, Capped)
    assert np.isfinite(model.history["train_loss"].to_numpy(dtype=float)).all()
    quick = {"n_samples": 2, "n_steps": 3, "n_folds": 2, "seed": 0, "silent": True}
    result = model.impute(return_mean=False, **quick)
    counts = adata.X.toarray()
    assert (result == np.rint(result)).all() and (result[:, counts > 0] == counts[counts > 0]).all()
    assert adata.uns["sccountsdiff"]["imputed"]["rounding"] == "nearest"  # its own
    assert model.generate(3, n_steps=2, silent=True).shape == (3, 20)
    assert (model.denoise(silent=True) >= counts).all()
    with pytest.raises(ValueError, match="`rounding='nb'` needs .*this one has the head Capped"):
        model.impute(rounding="nb", silent=True)
    model.save(tmp_path / "model")
    again = CountsDiffImputer.load(tmp_path / "model", adata=adata, accelerator="cpu")
    np.testing.assert_array_equal(again.impute(return_mean=False, **quick), result)
