"""The training loss of the negative-binomial head, with its derivatives by hand and in few passes over the entries."""

from __future__ import annotations

from collections.abc import Sequence
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

    def at(self, places: Tensor) -> Entries:
        """The same of some entries, at these positions row by row, as vectors."""
        n_genes = self.y.shape[1]
        row, column = places // n_genes, places % n_genes

        def chosen(value: Tensor) -> Tensor:
            if value.shape[1] == 1:
                return value[:, 0] if len(value) == 1 else value[:, 0].index_select(0, row)
            return value[0].index_select(0, column) if len(value) == 1 else value.reshape(-1).index_select(0, places)

        return Entries(*map(chosen, self))


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
            at = positions(entries.y != 0)
            loss, more = _of_counts([v.reshape(-1).index_select(0, at) for v in outputs], entries.at(at))
            if slopes is not None:
                for k, slope in enumerate(more):
                    slopes.view(-1).index_add_(0, at + (at // n_genes + k) * n_genes, slope)
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
    """The gamma of each rate after its noised count: ``m = s r`` is the mean of what remains, ``r = (1 - p) / b``."""

    shape: Tensor  # s = theta + x_t
    rate: Tensor  # b = theta / mu + p
    ratio: Tensor  # r
    by_mu: Tensor  # derivative of log m by log mu
    by_shape: Tensor  # of log s by the second output
    by_rate: Tensor  # of log b by the second output


def _posterior(outputs: Sequence[Tensor], entries: Entries) -> _Posterior:
    mu = (outputs[0] + entries.log_mean).exp_()
    free = (outputs[1] + entries.log_dispersion).exp_()  # theta, but for what the tail adds to it
    theta = torch.addcmul(free, mu, entries.tail)
    shape = theta + entries.xt
    by_mu = theta.div_(mu)
    rate = by_mu + entries.p
    by_rate = free / mu.mul_(rate)
    return _Posterior(shape, rate, entries.log_lost.exp() / rate, by_mu.div_(rate), free.div_(shape), by_rate)


def _without_counts(outputs: Sequence[Tensor], entries: Entries, slopes: Sequence[Tensor] | None) -> Tensor:
    """The sum if no count were to come, ``m + s log(1 + r)`` of each entry, and its derivatives into ``slopes``."""
    law, weight = _posterior(outputs, entries), entries.weight
    mean, log1p_r = law.shape * law.ratio, torch.log1p(law.ratio)
    total = torch.addcmul(mean, law.shape, log1p_r).mul_(weight).sum()
    if slopes is not None:
        # By log m of Eq. 6, and by log s of the likelihood, whose mean stands still.
        by_mean = mean.mul_(weight)
        by_law = log1p_r.sub_(law.ratio / (law.ratio + 1)).mul_(law.shape).mul_(weight)
        _to_outputs(by_mean, by_law, law, slopes)
    return total


def _of_counts(outputs: Sequence[Tensor], entries: Entries) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """What counts add to the sum, and to the derivatives of each entry by the outputs."""
    law, y, weight = _posterior(outputs, entries), entries.y, entries.weight
    log_gamma, slope = gamma_ratio(law.shape, y)
    logs = torch.xlogy(y, law.shape * law.ratio) + torch.xlogy(y, law.ratio) - y * torch.log1p(law.ratio)
    by_law = (y / (law.ratio + 1) - law.shape * slope).mul_(weight)
    slopes = torch.empty_like(y), torch.empty_like(y)
    _to_outputs(-y * weight, by_law, law, slopes)
    return -((logs + log_gamma) * weight).sum(), slopes


def _to_outputs(by_mean: Tensor, by_law: Tensor, law: _Posterior, slopes: Sequence[Tensor]) -> None:
    """From derivatives by log m and by log s to those by the outputs."""
    torch.mul(by_mean, law.by_mu, out=slopes[0])
    torch.mul(by_law.add_(by_mean), law.by_shape, out=slopes[1]).addcmul_(by_mean, law.by_rate, value=-1)
