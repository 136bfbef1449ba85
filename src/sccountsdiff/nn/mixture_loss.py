"""The training loss of negative binomials around one mean, with its derivatives by hand and in few passes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from sccountsdiff.diffusion.host import host_sees, multiply_into, positions, rows_of
from sccountsdiff.diffusion.losses import PIECE, gamma_ratio
from sccountsdiff.nn.posterior_loss import Entries


def posterior_mixture_loss(outputs: Tensor, starts: Sequence[float], entries: Entries) -> Tensor:
    """Sum of weighted losses of entries with the law of :class:`~sccountsdiff.nn.NegativeBinomialMixture`.

    As that head's ``predict`` and ``loss``, one after the other, but for rounding.

    Parameters
    ----------
    outputs
        What is added to the log mean (1), log weights of all components but the first, and what is added to the log
        dispersion of each, ``(2 * components, cells, genes)``.
    starts
        What is added to the log dispersion of each component beside.
    entries
        As in :func:`~sccountsdiff.nn.posterior_loss.posterior_nb_loss`.

    Returns
    -------
    The sum. Only the outputs have a gradient.

    Examples
    --------
    One component:

    >>> import torch
    >>> from sccountsdiff.diffusion import nb_loss
    >>> none, one = torch.zeros(1, 1), torch.ones(1, 1)
    >>> entries = Entries(
    ...     y=3 * one, weight=one, log_mean=none, log_dispersion=none, xt=none, p=none, log_lost=none, tail=none
    ... )
    >>> found = posterior_mixture_loss(torch.zeros(2, 1, 1), [0.0], entries)
    >>> torch.allclose(found, 1 + nb_loss(torch.tensor(3.0), torch.tensor(0.0), torch.tensor(0.0)))
    True
    """
    return _MixtureLoss.apply(outputs, tuple(starts), *entries)


class _MixtureLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, outputs: Tensor, starts: tuple[float, ...], *values: Tensor) -> Tensor:
        entries = Entries(*values)
        if not host_sees(outputs):
            slopes = outputs.new_empty(outputs.shape[1], len(outputs), outputs.shape[2])
            total = _loss(outputs.unbind(), starts, entries, slopes.unbind(1), has_counts=True).sum()
        else:
            slopes = outputs.new_zeros(outputs.shape[1], len(outputs), outputs.shape[2])
            total = _some_by_some(outputs, starts, entries, slopes)
        ctx.save_for_backward(slopes)
        return total

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor | None, ...]:
        # In place, as the memory of another such array takes longer than the product; a second time, torch says that it is gone.
        return ctx.saved_tensors[0].mul_(gradient).movedim(1, 0), *[None] * (1 + len(Entries._fields))


def _some_by_some(outputs: Tensor, starts: tuple[float, ...], entries: Entries, slopes: Tensor) -> Tensor:
    """The loss of the entries that have a weight, where the host sees which: zeros, and those with counts.

    Most have no counts, and their loss takes a fraction of the time. What is computed for each of a piece stays in the cache.
    """
    n_outputs, n_cells, n_genes = outputs.shape
    flat, total = outputs.movedim(0, 1).reshape(-1), outputs.new_zeros(())
    has_weight, has_count = (values.numpy() != 0 for values in (entries.weight, entries.xt + entries.y))
    for has_counts, which in ((False, has_weight > has_count), (True, has_weight & has_count)):
        for at in positions(torch.from_numpy(which)).split(PIECE):
            row = rows_of(at, (n_cells, n_genes))
            place = at + row * ((n_outputs - 1) * n_genes)  # of the first output; others are as many genes further on
            found = outputs.new_empty(n_outputs, len(at))
            chosen = [flat[k * n_genes :].index_select(0, place) for k in range(n_outputs)]
            total += _loss(chosen, starts, entries.at(at, row, has_counts), found.unbind(), has_counts).sum()
            for k, slope in enumerate(found):
                slopes.view(-1)[k * n_genes :].index_copy_(0, place, slope)
    return total


class _Component(NamedTuple):
    """One gamma, ``Gamma(theta, beta)`` with ``beta = theta / mu``, and what it says of the counts.

    Let ``A(n, q) = log Gamma(theta + n) / Gamma(theta) + theta log beta - (theta + n) log(beta + q)``, from the probability
    of ``n`` counts where a share ``q`` of all is seen.
    """

    free: Tensor  # theta, but for what the tail adds to it
    noised: Tensor  # log weight + A(x_t, p)
    all: Tensor  # log weight + A(x_t + y, 1)
    mean: Tensor  # of the rate once x_t is seen: (theta + x_t) / (beta + p)
    # Derivatives by log mu, where beta moves, and by theta.
    noised_by_mu: Tensor
    noised_by_theta: Tensor
    all_by_mu: Tensor
    all_by_theta: Tensor
    mean_by_mu: Tensor
    mean_by_theta: Tensor


def _component(
    mu: Tensor, logit: Tensor | None, log_theta: Tensor, start: float, entries: Entries, has_counts: bool
) -> _Component:
    p = entries.p
    free = (log_theta + (entries.log_dispersion + start)).exp_()
    theta = torch.addcmul(free, mu, entries.tail)
    beta = theta / mu
    inverse, inverse_all = (beta + p).reciprocal_(), (beta + 1).reciprocal_()
    gone = p * inverse  # 1 - beta / (beta + p)
    log_share, log_share_all = torch.log1p(p / beta).neg_(), torch.log1p(beta.reciprocal()).neg_()  # beta / (beta + q)
    noised, whole = theta * log_share, theta * log_share_all
    mean, mean_all = theta * inverse, theta * inverse_all
    if has_counts:
        xt, x0 = entries.xt, entries.xt + entries.y
        (ratio, slope), (ratio_all, slope_all) = gamma_ratio(theta, xt), gamma_ratio(theta, x0)
        noised += ratio.add_(torch.xlogy(xt, inverse))
        whole += ratio_all.add_(torch.xlogy(x0, inverse_all))
        mean.addcmul_(xt, inverse)
        mean_all.addcmul_(x0, inverse_all)
        # beta (theta + n) / (beta + q) - theta and 1 - (theta + n) / (beta + q) / mu, without differences of large numbers.
        noised_by_mu = (beta * xt).addcmul_(theta, p, value=-1).mul_(inverse)
        all_by_mu = (beta * x0).sub_(theta).mul_(inverse_all)
        short = (p - xt / mu).mul_(inverse)
        noised_by_theta = log_share.add_(slope).add_(short)
        all_by_theta = log_share_all.add_(slope_all).add_((1 - x0 / mu).mul_(inverse_all))
    else:
        noised_by_mu, all_by_mu = -p * mean, mean_all.neg_()
        short = gone
        noised_by_theta, all_by_theta = log_share.add_(gone), log_share_all.add_(inverse_all)
    if logit is not None:
        noised += logit
        whole += logit
    mean_by_mu, mean_by_theta = beta.mul_(inverse).mul_(mean), short * inverse
    return _Component(
        free, noised, whole, mean, noised_by_mu, noised_by_theta, all_by_mu, all_by_theta, mean_by_mu, mean_by_theta
    )


def _loss(
    outputs: Sequence[Tensor],
    starts: tuple[float, ...],
    entries: Entries,
    slopes: Sequence[Tensor],
    has_counts: bool,
) -> Tensor:
    """Weighted loss of each entry; its derivatives by the outputs go into ``slopes``. Without counts, all are 0.

    The negative log-likelihood of ``y`` given ``x_t`` is ``logsumexp_k A_k(x_t, p) - logsumexp_k A_k(x_t + y, 1)``, but for
    what does not depend on the outputs: no posterior has to be written down.
    """
    n = len(starts)
    mu = (outputs[0] + entries.log_mean).exp_()
    logits = [None, *outputs[1:n]]
    parts = [_component(mu, *given, entries, has_counts) for given in zip(logits, outputs[n:], starts, strict=True)]
    log_noised, noised = _shares([part.noised for part in parts])
    log_all, whole = _shares([part.all for part in parts])
    rate = noised[0] * parts[0].mean
    for share, part in zip(noised[1:], parts[1:], strict=True):
        rate.addcmul_(share, part.mean)
    lost, weight = entries.log_lost.exp(), entries.weight
    mean = lost * rate
    loss = torch.sub(log_noised, log_all).add_(mean)
    by_rate = lost * weight  # Eq. 6 by the rate
    if has_counts:
        loss.sub_(torch.xlogy(entries.y, mean)).sub_(torch.xlogy(entries.y, lost))
        by_rate = (lost - entries.y / rate) * weight
    for k, part in enumerate(parts):
        by_mean = by_rate * noised[k]
        # The weight of a component moves the mean, too.
        by_noised = torch.sub(part.mean, rate).mul_(by_mean).addcmul_(noised[k], weight)
        by_all = whole[k].mul_(weight)
        if k > 0:
            slopes[k].copy_(by_noised).sub_(by_all)
        by_mu = part.noised_by_mu.mul_(by_noised).addcmul_(part.all_by_mu, by_all, value=-1)
        by_mu.addcmul_(part.mean_by_mu, by_mean)
        slopes[0].copy_(by_mu) if k == 0 else slopes[0].add_(by_mu)
        by_theta = part.noised_by_theta.mul_(by_noised).addcmul_(part.all_by_theta, by_all, value=-1)
        multiply_into(slopes[n + k], by_theta.addcmul_(part.mean_by_theta, by_mean), part.free)
    return loss.mul_(weight)


def _shares(logs: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Logarithm of the sum of numbers, from their logarithms, and the share of each in the sum."""
    # Shares are not taken from the total: its rounding, where logarithms are large, would be theirs.
    if len(logs) == 2:  # as by default, in less time
        ahead = logs[1] - logs[0]
        return F.softplus(ahead).add_(logs[0]), [torch.sigmoid(-ahead), torch.sigmoid(ahead)]
    return reduce(torch.logaddexp, logs), list(torch.stack(logs).softmax(0).unbind())
