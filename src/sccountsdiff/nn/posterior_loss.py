"""The training loss of the negative-binomial head, with its derivatives by hand and in few passes over the entries."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sccountsdiff.diffusion.host import host_sees, positions
from sccountsdiff.diffusion.losses import PIECE, gamma_ratio


class Entries(NamedTuple):
    """What is known of entries beside the outputs of the network: rows of cells, or one row or number for all.

    Examples
    --------
    >>> import torch
    >>> one = torch.ones(2, 3)
    >>> Entries(one, one, one, one, one, one, one, tail=one[:1]).rows(slice(1))[-1].shape
    torch.Size([1, 3])
    """

    y: Tensor
    weight: Tensor
    log_mean: Tensor
    log_dispersion: Tensor
    xt: Tensor
    p: Tensor
    log_lost: Tensor
    tail: Tensor

    def rows(self, some: slice) -> Entries:
        """The same of some of the cells."""
        return Entries(*(value if len(value) == 1 else value[some] for value in self))


def posterior_nb_loss(outputs: Tensor, entries: Entries) -> Tensor:
    """Sum of weighted losses of entries whose law is the posterior of a gamma, as the negative-binomial head has it.

    As that head's ``predict`` and ``loss``, one after the other, but for rounding.

    Parameters
    ----------
    outputs
        What is added to log means and to log dispersions, ``(2, cells, genes)``.
    entries
        Counts to come, weights of the loss, log means and log dispersions that the outputs are added to, noised counts,
        their survival, the log of what is lost and what is added to the dispersion for each count of the mean.

    Returns
    -------
    The sum. Only the outputs have a gradient.

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.diffusion import nb_loss
    >>> none, one = torch.zeros(1, 1), torch.ones(1, 1)
    >>> entries = Entries(
    ...     y=3 * one, weight=one, log_mean=none, log_dispersion=none, xt=none, p=none, log_lost=none, tail=none
    ... )
    >>> found = posterior_nb_loss(torch.zeros(2, 1, 1), entries)
    >>> torch.allclose(found, 1 + nb_loss(torch.tensor(3.0), torch.tensor(0.0), torch.tensor(0.0)))
    True
    """
    return _PosteriorLoss.apply(outputs, *entries)


class _PosteriorLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, outputs: Tensor, *values: Tensor) -> Tensor:
        entries, needs_slopes = Entries(*values), ctx.needs_input_grad[0]
        n_cells, n_genes = outputs.shape[1:]
        # What is computed for each entry of a piece stays in the cache of a core.
        size = max(1, PIECE // max(n_genes, 1)) if host_sees(outputs) else n_cells
        slopes = torch.empty_like(outputs) if needs_slopes else None
        total = outputs.new_zeros(())
        for start in range(0, n_cells, size):
            some = slice(start, start + size)
            into = None if slopes is None else slopes[:, some]
            total += _piece(outputs[:, some], entries.rows(some), into)
        ctx.save_for_backward(slopes)
        return total

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return gradient * ctx.saved_tensors[0], *[None] * len(Entries._fields)


def _piece(outputs: Tensor, entries: Entries, slopes: Tensor | None) -> Tensor:
    """The sum over some cells; its derivatives by the outputs are written into ``slopes``.

    With the shape ``s = theta + x_t`` of the posterior and its rate ``b = theta / mu + p``, the mean of what remains is
    ``m = s r`` with ``r = (1 - p) / b``.
    """
    y, weight, log_mean, log_dispersion, xt, p, log_lost, tail = entries
    mu = (outputs[0] + log_mean).exp_()
    free = (outputs[1] + log_dispersion).exp_()
    theta = torch.addcmul(free, mu, tail)
    shape = theta + xt
    inverse_scale = theta.div_(mu)
    rate = inverse_scale + p
    r = log_lost.exp() / rate
    mean, log1p_r = shape * r, torch.log1p(r)
    # Of an entry without any count to come, the loss is m + s log(1 + r).
    loss = torch.addcmul(mean, shape, log1p_r)
    # All else has y as a factor: computed where there is any, if that can be seen, which takes a fraction of the time.
    at = positions(y != 0) if host_sees(y) else None

    def of(values: Tensor) -> Tensor:
        return values if at is None else values.flatten().index_select(0, at)

    def add(values: Tensor, more: Tensor) -> Tensor:
        return values.add_(more) if at is None else values.view(-1).index_add_(0, at, more).view_as(values)

    counts, shapes, ratios, means = of(y), of(shape), of(r), of(mean)
    log_gamma, by_shape = gamma_ratio(shapes, counts)
    loss = add(
        loss, counts * torch.log1p(ratios) - torch.xlogy(counts, means) - torch.xlogy(counts, ratios) - log_gamma
    )
    if slopes is not None:
        # By log m of Eq. 6; by log s of the likelihood, whose mean stands still.
        by_mean = (mean - y).mul_(weight)
        r1 = r + 1
        by_law = log1p_r.sub_(r.div_(r1)).mul_(shape)
        by_law = add(by_law, counts / of(r1) - shapes * by_shape).mul_(weight)
        # And from these to the outputs: by log mu, and by the log of theta but for what the tail adds to it.
        torch.mul(by_mean, inverse_scale.div_(rate), out=slopes[0])
        by_theta = by_law.add_(by_mean).div_(shape).sub_(by_mean.div_(mu.mul_(rate)))
        torch.mul(free, by_theta, out=slopes[1])
    return loss.mul_(weight).sum()
