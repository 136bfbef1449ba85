"""Masked (absorbing) diffusion of classes: the step of MDLM, and the mathematics of ReMDM, in its symbols."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from sccountsdiff.diffusion import (
    Cap,
    Move,
    Rescale,
    birth_probability,
    follow,
    max_attrition,
)

MASK = -1
"""Code of an entry that is masked; classes are 0, 1, ..."""

Remasking = Literal["rescale", "cap", "conf"]


class MaskedState(NamedTuple):
    """Codes (cells, genes), and the probability that each had when it was drawn."""

    codes: Tensor
    confidence: Tensor


def masked_step(
    log_law: Callable[[Tensor], Tensor],
    state: MaskedState,
    sites: Tensor,
    p_reveal: Tensor | float,
    p_mask: Tensor | float = 0.0,
    generator: torch.Generator | None = None,
) -> MaskedState:
    """One step towards the data: masked entries may be revealed, all others may be masked again.

    Parameters
    ----------
    log_law
        Log-probabilities (entries, classes) at the entries of a boolean matrix (cells, genes).
    state
        State before the step.
    sites
        Boolean (cells, genes): entries that may be revealed.
    p_reveal, p_mask
        Probability that a masked entry is revealed, and that another one is masked again.
    generator
        Source of randomness.

    Examples
    --------
    >>> import torch
    >>> always_two = lambda entries: torch.tensor([0.0, 0.0, 1.0]).log().expand(int(entries.sum()), 3)
    >>> state = MaskedState(torch.tensor([[MASK, MASK, 1]]), torch.ones(1, 3))
    >>> masked_step(always_two, state, torch.tensor([[True, False, True]]), p_reveal=1.0).codes.tolist()
    [[2, -1, 1]]
    """
    is_masked = state.codes == MASK
    chance = torch.rand(state.codes.shape, generator=generator, device=state.codes.device)
    reveal = sites & is_masked & (chance < p_reveal)
    codes = state.codes.masked_fill(~is_masked & (chance < p_mask), MASK)
    if not reveal.any():
        return state._replace(codes=codes)
    law = log_law(reveal).exp()
    drawn = torch.multinomial(law, 1, generator=generator)
    return MaskedState(
        codes.masked_scatter(reveal, drawn),
        state.confidence.masked_scatter(reveal, law.gather(1, drawn).to(state.confidence)),
    )


def remasking_rates(
    remasking: Remasking, eta: float, alpha_t: Tensor, alpha_s: Tensor, state: MaskedState, sites: Tensor
) -> Tensor:
    """Probability that an entry which is not masked is masked again in the step from t to s.

    ReMDM's sigma is what CountsDiff calls attrition, with the same bound ``sigma_max``: ``"rescale"`` takes the share
    ``eta`` of it, ``"cap"`` keeps it below ``eta``. ``"conf"`` splits what ``"rescale"`` would take among the entries
    of a cell, more to those that were less probable when they were drawn; masked entries get 0.

    Examples
    --------
    >>> import torch
    >>> state = MaskedState(torch.tensor([[3, 5, MASK]]), torch.tensor([[0.9, 0.9, 1.0]]))
    >>> alpha_t, alpha_s, sites = torch.tensor(0.5), torch.tensor(0.75), torch.ones(1, 3, dtype=torch.bool)
    >>> remasking_rates("conf", 1.0, alpha_t, alpha_s, state, sites).tolist()
    [[0.25, 0.25, 0.0]]
    >>> remasking_rates("cap", 0.25, alpha_t, alpha_s, state, sites).item()
    0.25
    """
    if remasking == "conf":
        decoded = sites & (state.codes != MASK)
        share = torch.where(decoded, -state.confidence, -torch.inf).softmax(dim=1)
        return torch.where(decoded, share * eta * max_attrition(alpha_t, alpha_s), 0.0)
    return (Rescale(eta) if remasking == "rescale" else Cap(eta)).sigma(alpha_t, alpha_s)


def sample_masked(
    log_law: Callable[[Tensor, Tensor, float], Tensor],
    walk: list[Move],
    x0: Tensor,
    observed: Tensor,
    sites: Tensor,
    *,
    remasking: Remasking = "rescale",
    eta: float = 0.0,
    known: Literal["clean", "noised"] = "clean",
    generator: torch.Generator | None = None,
    on_move: Callable[[Move, MaskedState], None] | None = None,
) -> Tensor:
    """Walk from all masked to none; observed entries are given at every step (RePaint).

    Parameters
    ----------
    log_law
        Log-probabilities (entries, classes) for codes (cells, genes), a boolean matrix of the entries that are asked for,
        and the time of the codes.
    walk
        Moves from t = 1 to t = 0 (:func:`~sccountsdiff.diffusion.reverse_walk`).
    x0
        Codes (cells, genes); only the observed ones are used.
    observed, sites
        Boolean (cells, genes): what is observed, and what is to be filled in. All else stays masked.
    remasking, eta
        Remasking schedule, see :func:`remasking_rates`. Without remasking (``eta=0``) this is MDLM's sampler.
    known
        Whether the network sees observed entries as they are (``"clean"``), or masked as often as the others
        (``"noised"``).
    generator
        Source of randomness.
    on_move
        Called with every move and the state after it.

    Returns
    -------
    Codes, (cells, genes).

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.diffusion import reverse_walk
    >>> always_two = lambda codes, entries, t: torch.tensor([0.0, 0.0, 1.0]).log().expand(int(entries.sum()), 3)
    >>> observed = torch.tensor([[True, False, False]])
    >>> sites = torch.tensor([[False, True, False]])
    >>> sample_masked(always_two, reverse_walk(3), torch.tensor([[7, 0, 0]]), observed, sites).tolist()
    [[7, 2, -1]]
    """
    alphas = 1 - torch.tensor([(move.t, move.s) for move in walk], device=x0.device)  # MDLM's log-linear schedule
    uniform = lambda: torch.rand(x0.shape, generator=generator, device=x0.device)

    def towards_data(state: MaskedState, number: int) -> MaskedState:
        alpha_t, alpha_s = alphas[number]
        shown = observed if known == "clean" else observed & (uniform() < alpha_t)
        sigma = remasking_rates(remasking, eta, alpha_t, alpha_s, state, sites)
        law = partial(log_law, torch.where(shown, x0, state.codes), t=walk[number].t)
        return masked_step(law, state, sites, birth_probability(alpha_t, alpha_s, sigma), sigma, generator)

    def into_noise(state: MaskedState, number: int) -> MaskedState:
        alpha_t, alpha_s = alphas[number]
        return state._replace(codes=state.codes.masked_fill(uniform() >= alpha_s / alpha_t, MASK))

    start = MaskedState(torch.full_like(x0, MASK), torch.ones(x0.shape, device=x0.device))
    return torch.where(observed, x0, follow(walk, start, towards_data, into_noise, on_move).codes)
