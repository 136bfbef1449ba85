"""The training loss of a mixture of negative binomials, with its derivatives by hand and in few passes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sccountsdiff.diffusion.host import host_sees, positions, rows_of
from sccountsdiff.diffusion.losses import PIECE, gamma_ratio
from sccountsdiff.nn.posterior_loss import Entries

TINY = torch.finfo(torch.float32).tiny
"""Stands for a number that rounds to 0 where its logarithm is taken; smaller ones take ten times as long."""


def posterior_mixture_loss(outputs: Tensor, starts: Sequence[float], entries: Entries) -> Tensor:
    """Sum of weighted losses of entries with the law of :class:`~sccountsdiff.nn.NegativeBinomialMixture`.

    As that head's ``predict`` and ``loss``, one after the other, but for rounding.

    Parameters
    ----------
    outputs
        What is added to the log mean (1), log weights and log means of all components but the first, relative to its own, and what
        is added to the log dispersion of each, ``(3 * components - 1, cells, genes)``.
    starts
        What is added to the log dispersion of each component beside.
    entries
        As in :func:`~sccountsdiff.nn.posterior_loss.posterior_nb_loss`; the weight of an entry is 0 or that of its cell.

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
        if host_sees(outputs):
            total, slopes = _some_by_some(outputs, starts, entries)
        else:
            loss, found = _loss(_started(outputs.unbind(), starts), entries, has_counts=True)
            total, slopes = loss.sum(), found.movedim(0, 1).contiguous()
        ctx.save_for_backward(slopes)
        return total

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor | None, ...]:
        # In place, as the memory of another such array takes longer than the product; a second time, torch says that it is gone.
        return ctx.saved_tensors[0].mul_(gradient).movedim(1, 0), *[None] * (1 + len(Entries._fields))


def _some_by_some(outputs: Tensor, starts: tuple[float, ...], entries: Entries) -> tuple[Tensor, Tensor]:
    """The loss of the entries that have a weight, where the host sees which: zeros, and those with counts; and its derivatives.

    Most have no counts, and their loss takes a fraction of the time. What is computed for each of a piece stays in the cache.
    """
    n_outputs, n_cells, n_genes = outputs.shape
    slopes = outputs.new_zeros(n_cells, n_outputs, n_genes)
    flat, total = outputs.movedim(0, 1).reshape(-1), outputs.new_zeros(())
    has_weight, has_count = (values.numpy() != 0 for values in (entries.weight, entries.xt + entries.y))
    # Entries that have a weight have that of their cell, and its survival: a number for each cell is sooner at hand.
    entries = entries._replace(weight=entries.weight.amax(1, keepdim=True), p=-torch.expm1(entries.log_lost))
    for has_counts, which in ((False, has_weight > has_count), (True, has_weight & has_count)):
        for at in positions(torch.from_numpy(which)).split(PIECE):
            row = rows_of(at, (n_cells, n_genes))
            place = at + row * ((n_outputs - 1) * n_genes)  # of the first output; others are as many genes further on
            chosen = [flat[k * n_genes :].index_select(0, place) for k in range(n_outputs)]
            loss, found = _loss(_started(chosen, starts), entries.at(at, row, has_counts), has_counts)
            total += loss.sum()
            for k in range(n_outputs):
                slopes.view(-1)[k * n_genes :].scatter_(0, place, found[k])
    return total, slopes


def _started(outputs: Sequence[Tensor], starts: tuple[float, ...]) -> Tensor:
    """The outputs, with what is added to the log dispersion of each component."""
    n = len(outputs) - len(starts)
    return torch.stack([*outputs[:n], *(output + start for output, start in zip(outputs[n:], starts, strict=True))])


def _loss(outputs: Tensor, entries: Entries, has_counts: bool) -> tuple[Tensor, Tensor]:
    """Weighted loss of each entry, and its derivatives by the outputs. Without counts, all are 0.

    Let component k be ``Gamma(theta, beta)`` with ``beta = theta / mu``, and
    ``A(n, q) = log Gamma(theta + n) / Gamma(theta) + theta log beta - (theta + n) log(beta + q)``, from the probability of ``n``
    counts where a share ``q`` of all is seen. The negative log-likelihood of ``y`` given ``x_t`` is
    ``logsumexp_k A_k(x_t, p) - logsumexp_k A_k(x_t + y, 1)``, with log weights added, but for what does not depend on the outputs:
    no posterior has to be written down. Tensors of components have them first.
    """
    n = (len(outputs) + 1) // 3
    shift, logits, log_ratios, log_theta = outputs.tensor_split([1, n, 2 * n - 1])
    weight, p, log_lost = entries.weight, entries.p, entries.log_lost
    lost = log_lost.exp()
    ratios, shares_of_mean, by_logits = _ratios(logits, log_ratios)
    mu = (shift + entries.log_mean).exp_() * ratios
    free = (log_theta + entries.log_dispersion).exp_()
    theta = torch.addcmul(free, mu, entries.tail)  # the tail does not move the mean
    # 1 / (beta + q), and A of no counts, for q = p and q = 1.
    u = mu / theta
    pu = u * p
    log_p, log_1 = torch.log1p(pu), torch.log1p(u)
    seen_p, seen_1 = pu.add_(1), u + 1
    of_p, of_1 = u / seen_p, u.div_(seen_1)
    noised, whole = -theta * log_p, -theta * log_1
    rate = theta * of_p  # its mean, once x_t is seen
    # Derivatives by theta, and by log mu, where beta moves: without differences of large numbers.
    if has_counts:
        xt, x0 = entries.xt, entries.xt + entries.y
        (gamma_p, gamma_1), (slope_p, slope_1) = gamma_ratio(theta, torch.stack([xt, x0])[:, None])
        # Not by `xlogy`, which takes twenty times as long.
        noised += gamma_p.addcmul_(xt, of_p.clamp_min(TINY).log_())
        whole += gamma_1.addcmul_(x0, of_1.clamp_min(TINY).log_())
        rate.addcmul_(of_p, xt)
        short, short_1 = (p * mu).sub_(xt) / torch.addcmul(theta, p, mu), (mu - x0) / (theta + mu)
        noised_by_theta, whole_by_theta = slope_p.sub_(log_p).add_(short), slope_1.sub_(log_1).add_(short_1)
    else:
        short, short_1 = p * of_p, of_1
        noised_by_theta, whole_by_theta = short - log_p, short_1 - log_1
    noised_by_mu, whole_by_mu = theta * short, theta * short_1  # both with the other sign
    rate_by_mu, rate_by_theta = rate / seen_p, short.mul_(of_p)
    # Shares of the components before and after the counts to come are seen, and the logarithms of what all add up to.
    noised[1:] += logits
    whole[1:] += logits
    (log_noised, share_p), (log_whole, share_1) = _together(noised), _together(whole)
    rates = (share_p * rate).sum(0)
    y_hat = lost * rates
    loss = log_noised.sub_(log_whole).add_(y_hat)
    by_rate = lost * weight  # Eq. 6 by the rate
    if has_counts:
        loss.addcmul_(entries.y, y_hat.clamp_min_(TINY).log_().add_(log_lost), value=-1)
        by_rate = (lost - entries.y / rates.clamp_min(TINY)).mul_(weight)
    by_mean = share_p * by_rate
    by_noised = (rate - rates).mul_(by_mean).addcmul_(share_p, weight)  # the weight of a component moves the mean, too
    by_whole = share_1.mul_(weight)
    by_mu = whole_by_mu.mul_(by_whole).addcmul_(noised_by_mu, by_noised, value=-1).addcmul_(rate_by_mu, by_mean)
    by_theta = noised_by_theta.mul_(by_noised).addcmul_(whole_by_theta, by_whole, value=-1)
    slopes = torch.empty_like(outputs)
    by_all = torch.sum(by_mu, 0, out=slopes[0])
    torch.sub(by_noised[1:], by_whole[1:], out=slopes[1:n]).addcmul_(by_logits, by_all)
    torch.addcmul(by_mu[1:], shares_of_mean, by_all, value=-1, out=slopes[n : 2 * n - 1])
    torch.mul(by_theta.addcmul_(rate_by_theta, by_mean), free, out=slopes[2 * n - 1 :])
    return loss.mul_(weight), slopes


def _ratios(logits: Tensor, log_ratios: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Means of all components relative to that of all; shares in it of all but the first, and how their logits move the log means.

    Log means move by what those of all components but the first are said to be, less the share of each in the mean of all.
    """
    if len(logits) == 1:  # as by default, in less time
        # Their probabilities, and their shares in the mean of all.
        both = torch.stack([logits, logits + log_ratios])
        first, second = (-both).sigmoid_(), both.sigmoid_()
        ratios = [shares[1].clamp_min(TINY) / shares[0].clamp_min(TINY) for shares in (first, second)]
        return torch.cat(ratios), second[1], first[1] - first[0]
    none = torch.zeros_like(logits[:0].sum(0, keepdim=True))
    log_weights, log_ratios = torch.cat([none, logits]).log_softmax(0), torch.cat([none, log_ratios])
    joint = log_weights + log_ratios
    shares, log_all = joint.softmax(0), joint.logsumexp(0)
    return (log_ratios - log_all).exp_(), shares[1:], (log_weights.exp() - shares)[1:]


def _together(logs: Tensor) -> tuple[Tensor, Tensor]:
    """Logarithm of the sum of numbers, from their logarithms, and the share of each in the sum."""
    # Shares are not taken from the sum: its rounding, where logarithms are large, would be theirs.
    if len(logs) == 2:  # as by default, in less time
        ahead = logs[1] - logs[0]
        shares = torch.stack([-ahead, ahead]).sigmoid_()
        # The larger share is at least a half, and 1 less than it exact; `log1p` takes two thirds of the time of `log`.
        return torch.maximum(*logs).sub_(torch.maximum(*shares).sub_(1).log1p_()), shares
    return logs.logsumexp(0), logs.softmax(0)
