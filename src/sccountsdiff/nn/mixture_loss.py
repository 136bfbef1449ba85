"""The training loss of negative binomials around one mean, with its derivatives by hand and in few passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from sccountsdiff.diffusion.host import host_sees, positions
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
        n_outputs, n_cells, n_genes = outputs.shape
        slopes = outputs.new_empty(n_cells, n_outputs, n_genes)
        losses = torch.empty_like(entries.y)
        seen = host_sees(outputs)
        # What is computed for each entry of a piece stays in the cache of a core. Most entries have no counts, and their
        # loss takes a fraction of the time; if the host can see which do, these are done again.
        size = max(1, PIECE // max(n_genes, 1)) if seen else n_cells
        for start in range(0, n_cells, size):
            some = slice(start, start + size)
            losses[some] = _loss(
                outputs[:, some].unbind(), starts, entries.rows(some), slopes[some].unbind(1), has_counts=not seen
            )
        if seen:
            at = positions(entries.y + entries.xt != 0)
            found = outputs.new_empty(n_outputs, len(at))
            chosen = [output.reshape(-1).index_select(0, at) for output in outputs]
            again = _loss(chosen, starts, entries.at(at), found.unbind(), has_counts=True)
            losses.view(-1).index_copy_(0, at, again)
            first = at + at // n_genes * ((n_outputs - 1) * n_genes)
            for k, slope in enumerate(found):
                slopes.view(-1).index_copy_(0, first + k * n_genes, slope)
        ctx.save_for_backward(slopes)
        return losses.sum()

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return (gradient * ctx.saved_tensors[0]).movedim(1, 0), *[None] * (1 + len(Entries._fields))


class _Component(NamedTuple):
    """One gamma, ``Gamma(theta, beta)`` with ``beta = theta / mu``, and what it says of the counts."""

    free: Tensor  # theta, but for what the tail adds to it
    theta: Tensor
    beta: Tensor
    left: Tensor  # beta + p
    mean: Tensor  # of the rate once the noised count is seen: (theta + x_t) / (beta + p)
    log_noised: Tensor  # log of weight times probability of the noised count, but for factors that all components share
    log_all: Tensor  # the same of the whole count, x_t + y
    by_noised: Tensor  # derivatives of the two probabilities by theta, beta standing still
    by_all: Tensor


def _loss(
    outputs: Sequence[Tensor],
    starts: tuple[float, ...],
    entries: Entries,
    slopes: Sequence[Tensor],
    has_counts: bool,
) -> Tensor:
    """Weighted loss of each entry; its derivatives by the outputs go into ``slopes``. Without counts, all are 0.

    Let ``A(n, q) = log Gamma(theta + n) / Gamma(theta) + theta log beta - (theta + n) log(beta + q)``, from the probability
    of ``n`` counts where a share ``q`` of all is seen. Then ``y`` given ``x_t`` has the negative log-likelihood
    ``logsumexp_k A_k(x_t, p) - logsumexp_k A_k(x_t + y, 1)``: no posterior has to be written down.
    """
    n = len(starts)
    mu = (outputs[0] + entries.log_mean).exp_()
    logits = [None, *outputs[1:n]]
    parts = [_component(mu, *given, entries, has_counts) for given in zip(logits, outputs[n:], starts, strict=True)]
    log_noised, noised = _shares([part.log_noised for part in parts])
    log_all, whole = _shares([part.log_all for part in parts])
    rate = noised[0] * parts[0].mean
    for share, part in zip(noised[1:], parts[1:], strict=True):
        rate.addcmul_(share, part.mean)
    lost, weight = entries.log_lost.exp(), entries.weight
    mean = lost * rate
    loss = log_noised.sub_(log_all).add_(mean)
    by_rate = lost * weight  # Eq. 6 by the rate
    if has_counts:
        loss.sub_(torch.xlogy(entries.y, mean)).sub_(torch.xlogy(entries.y, lost))
        by_rate = (lost - entries.y / rate) * weight
    for k, part in enumerate(parts):
        through_mean = by_rate * noised[k]
        # By the log weight of the component, which moves the mean, too.
        by_noised = (part.mean - rate).mul_(through_mean).addcmul_(noised[k], weight)
        by_all = whole[k].mul_(weight)
        if k > 0:
            torch.sub(by_noised, by_all, out=slopes[k])
        # By log mu, which moves beta: A changes by beta (theta + n) / (beta + q) - theta, and the mean by mean beta / left.
        after = (part.theta + (entries.y + entries.xt) if has_counts else part.theta) / (part.beta + 1)
        by_mu = (part.beta * part.mean).sub_(part.theta).mul_(by_noised)
        by_mu.addcmul_((part.beta * after).sub_(part.theta), by_all, value=-1)
        by_mu.addcmul_(through_mean * part.mean, part.beta / part.left)
        slopes[0].copy_(by_mu) if k == 0 else slopes[0].add_(by_mu)
        # By log theta, of which the part that the tail adds stands still.
        short = 1 - part.mean / mu
        by_theta = part.by_noised.add_(short).mul_(by_noised)
        by_theta.addcmul_(part.by_all.add_(1).sub_(after.div_(mu)), by_all, value=-1)
        torch.mul(by_theta.addcmul_(through_mean.div_(part.left), short), part.free, out=slopes[n + k])
    return loss.mul_(weight)


def _component(
    mu: Tensor, logit: Tensor | None, log_theta: Tensor, start: float, entries: Entries, has_counts: bool
) -> _Component:
    free = (log_theta + (entries.log_dispersion + start)).exp_()
    theta = torch.addcmul(free, mu, entries.tail)
    beta = theta / mu
    left = beta + entries.p
    by_noised, by_all = torch.log1p(entries.p / beta).neg_(), torch.log1p(beta.reciprocal()).neg_()
    log_noised, log_all = theta * by_noised, theta * by_all
    mean = theta / left
    if has_counts:
        xt, x0 = entries.xt, entries.xt + entries.y
        mean = (theta + xt).div_(left)
        for value, slope, counts, rate in (log_noised, by_noised, xt, left), (log_all, by_all, x0, beta + 1):
            ratio, more = gamma_ratio(theta, counts)
            value.add_(ratio).sub_(torch.xlogy(counts, rate))
            slope.add_(more)
    if logit is not None:
        log_noised.add_(logit)
        log_all.add_(logit)
    return _Component(free, theta, beta, left, mean, log_noised, log_all, by_noised, by_all)


def _shares(logs: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Logarithm of the sum of numbers, from their logarithms, which are changed, and the share of each in the sum."""
    largest = logs[0].clone()
    for log in logs[1:]:
        torch.maximum(largest, log, out=largest)
    shares = [log.sub_(largest).exp_() for log in logs]
    total = shares[0].clone()
    for share in shares[1:]:
        total.add_(share)
    return largest.add_(total.log()), [share.div_(total) for share in shares]
