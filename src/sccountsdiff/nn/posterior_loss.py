"""The training loss of the negative-binomial head, with its derivatives by hand and in few passes over the entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from sccountsdiff.diffusion.host import host_sees, multiply_into, positions, rows_of
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

    def at(self, places: Tensor, row: Tensor, has_counts: bool = True) -> Entries:
        """The same of some entries, at these positions row by row, which are in these rows, as vectors.

        Where none of them has counts, those are left as they are: nobody asks for them.
        """
        column = places - row * self.y.shape[1]

        def chosen(value: Tensor) -> Tensor:
            if value.shape[1] == 1:
                return value[:, 0] if len(value) == 1 else value[:, 0].index_select(0, row)
            return value[0].index_select(0, column) if len(value) == 1 else value.reshape(-1).index_select(0, places)

        skipped = () if has_counts else ("y", "xt")
        return self._replace(**{name: chosen(value) for name, value in self._asdict().items() if name not in skipped})


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
        entries = Entries(*values)
        n_cells, n_genes = outputs.shape[1:]
        slopes = outputs.new_empty(n_cells, 2, n_genes) if ctx.needs_input_grad[0] else None
        # What is computed for each entry of a piece stays in the cache of a core.
        size = max(1, PIECE // max(n_genes, 1)) if host_sees(outputs) else n_cells
        total = outputs.new_zeros(())
        for start in range(0, n_cells, size):
            some = slice(start, start + size)
            into = None if slopes is None else slopes[some].unbind(1)
            total += _without_counts(outputs[:, some].unbind(), entries.rows(some), into)
        # What counts add vanishes where there is none: it is computed where there is one, if that can be seen.
        if host_sees(entries.y):
            at = positions(entries.y)
            row = rows_of(at, (n_cells, n_genes))
            loss, more = _of_counts([v.reshape(-1).index_select(0, at) for v in outputs], entries.at(at, row))
            if slopes is not None:
                for k, slope in enumerate(more):
                    slopes.view(-1).index_add_(0, at + (row + k) * n_genes, slope)
        else:
            loss, more = _of_counts(outputs.unbind(), entries)
            if slopes is not None:
                slopes += torch.stack(more, dim=1)
        ctx.save_for_backward(slopes)
        return total + loss

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return (gradient * ctx.saved_tensors[0]).movedim(1, 0), *[None] * len(Entries._fields)


class _Posterior(NamedTuple):
    """The gamma of each rate after its noised count: ``m = s r`` is the mean of what remains, ``r = (1 - p) / b``.

    The derivative of log m by the first output is ``a / b``; that of log s by the second is ``theta_0 / s``, and that of log b
    ``c / b``.
    """

    free: Tensor  # theta_0: theta, but for what the tail adds to it
    shape: Tensor  # s = theta + x_t
    by_free: Tensor  # c = theta_0 / mu
    prior: Tensor  # a = theta / mu
    rate: Tensor  # b = a + p
    ratio: Tensor  # r


def _posterior(outputs: Sequence[Tensor], entries: Entries) -> _Posterior:
    mu = (outputs[0] + entries.log_mean).exp_()
    free = (outputs[1] + entries.log_dispersion).exp_()
    by_free = free / mu
    shape = torch.addcmul(free, mu, entries.tail, out=mu).add_(entries.xt)
    prior = by_free + entries.tail
    rate = prior + entries.p
    return _Posterior(free, shape, by_free, prior, rate, entries.log_lost.exp() / rate)


def _without_counts(outputs: Sequence[Tensor], entries: Entries, slopes: Sequence[Tensor] | None) -> Tensor:
    """The sum if no count were to come, ``m + s log(1 + r)`` of each entry, and its derivatives into ``slopes``."""
    law, weight = _posterior(outputs, entries), entries.weight
    shape, log1p_r = law.shape.mul_(weight), torch.log1p(law.ratio)
    by_mean = shape * law.ratio
    total = by_mean.sum() + torch.dot(shape.view(-1), log1p_r.view(-1))
    if slopes is not None:
        # By log m of Eq. 6, and by log s of the likelihood, whose mean stands still: s r and s (log(1 + r) - r / (1 + r)).
        # What both add to the second output through s is theta_0 times (log(1 + r) - r / (1 + r) + r).
        by_rate = by_mean.div_(law.rate)
        multiply_into(slopes[0], by_rate, law.prior)
        share = torch.div(law.ratio, torch.add(law.ratio, 1, out=shape), out=shape)
        through_shape = log1p_r.add_(law.ratio).sub_(share).mul_(law.free.mul_(weight))
        slopes[1].copy_(through_shape.addcmul_(by_rate, law.by_free, value=-1))
    return total


def _of_counts(outputs: Sequence[Tensor], entries: Entries) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """What counts add to the sum, and to the derivatives of each entry by the outputs."""
    law, y, weight = _posterior(outputs, entries), entries.y, entries.weight
    log_gamma, slope = gamma_ratio(law.shape, y)
    logs = torch.xlogy(y, law.shape * law.ratio).add_(torch.xlogy(y, law.ratio)).sub_(y * torch.log1p(law.ratio))
    total = torch.dot(logs.add_(log_gamma).view(-1), weight.reshape(-1))
    # As above: by log m, and by log s of the likelihood.
    by_mean = y * weight
    by_law = (y / (law.ratio + 1)).sub_(slope.mul_(law.shape)).mul_(weight)
    through_shape = by_law.sub_(by_mean).mul_(law.free).div_(law.shape)
    by_rate = by_mean.div_(law.rate)
    return -total, (-by_rate * law.prior, through_shape.addcmul_(by_rate, law.by_free))
