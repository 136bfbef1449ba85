"""What is measured once a network is trained: whether its predictions add up, and how sure it may be of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import torch
from scipy.optimize import brentq, minimize_scalar
from torch import Tensor

from sccountsdiff.diffusion import MISSING, NOISED, OBSERVED, NoisedCounts, Prediction, indicators
from sccountsdiff.diffusion.host import positions
from sccountsdiff.diffusion.noising import hide
from sccountsdiff.module import CountsDiffModule
from sccountsdiff.nn import HeadInput

LARGEST_SHIFT = 2.0
"""Log dispersions of groups of genes are changed by this much at most."""

LARGEST_LEVEL = 0.1
"""Log means are changed by this much at most at each time: a network that is further off has not learnt."""

CALIBRATED_CELLS, CALIBRATED_ENTRIES, CALIBRATED_DRAWS = 512, 15_000, 2
"""Cells that laws are calibrated on at most, entries of theirs at a time, and times that half of all are hidden."""

DISPERSIONS, LARGEST_ZERO_ODDS = (0.0, -0.3, -0.6, -0.9, -1.2, 0.3, 0.6), 3.0
"""What may be added to log dispersions, where laws are calibrated, and how much to the log-odds of zeros at most."""

CELLS_TOGETHER, BYTES_TOGETHER = 512, 2**31
"""Cells at a time that are predicted, and the memory that this may take: with many genes, or a large network, they are fewer."""


@torch.no_grad()
def level(module: CountsDiffModule, x0: Tensor, missing: Tensor, categories: Tensor, continuous: Tensor) -> None:
    """Make what is predicted add up to the counts of these cells: at each time, and of a group of which nothing is seen.

    A network that was trained to the end by Eq. 6 alone would have means without bias over all that it was shown, but not
    over each of the ways in which genes were hidden; and the likelihood of the counts moves means, too.
    """
    module.denoiser.forget_corrections()
    if module.denoiser.head.scales_by_depth:
        _level_times(module, x0, missing, categories, continuous)
    depth = module.denoiser.group_depth
    if depth is None:
        return
    found, predicted = torch.zeros(2, len(depth.log_level), dtype=torch.float64, device=x0.device)
    for group, counts, hidden, predict in _hidden_groups(module, x0, missing, categories, continuous):
        predicted[group] += (predict().mean * hidden).sum(dtype=torch.float64)
        found[group] += (counts * hidden).sum(dtype=torch.float64)
    level = torch.where((found > 0) & (predicted > 0), torch.log(found / predicted), 0.0)
    depth.log_level.copy_(level)


def _level_times(module: CountsDiffModule, x0: Tensor, missing: Tensor, categories: Tensor, continuous: Tensor) -> None:
    """The levels of all times but 0, at which nothing is left to predict, with half of the entries observed.

    Then with the other half, so that each entry is predicted once: which of the largest counts happen to be among those that
    are observed would otherwise matter more than what the levels are to correct.
    """
    levels = module.denoiser.log_levels
    generator = torch.Generator(x0.device).manual_seed(0)
    # Of each time, counts to come, those predicted, and the square of the difference of each cell.
    found, predicted, squares = torch.zeros(3, len(levels), dtype=torch.float64, device=x0.device)
    for some in torch.arange(len(x0), device=x0.device).split(_cells_together(module)):
        denoise = module.denoise_with(categories[some], continuous[some], only_mean=True)
        counts, null = x0[some], torch.zeros_like(missing[some, 0])
        for number in range(1, len(levels)):
            t = torch.full_like(counts[:, 0], number / (len(levels) - 1))
            p = module.schedule.survival(t)[:, None].to(counts.dtype)
            of_cells, means = torch.zeros(2, len(counts), dtype=torch.float64, device=x0.device)
            for observed in _halves(module, counts, generator):
                y, status = hide(counts, p, observed, missing[some], generator)
                mean = denoise(counts - y, status, t, null).mean * indicators(status)[1]
                of_cells += y.sum(1, dtype=torch.float64)
                means += mean.sum(1, dtype=torch.float64)
            found[number] += of_cells.sum()
            predicted[number] += means.sum()
            squares[number] += (of_cells - means).square().sum()
    level = torch.where((found > 0) & (predicted > 0), torch.log(found / predicted), 0.0)
    # What may as well be chance is left alone.
    chance = squares / found.square().clamp_min(1)
    level *= (1 - chance / level.square().clamp_min(1e-12)).clamp_min(0)
    levels.copy_(level.clamp(-LARGEST_LEVEL, LARGEST_LEVEL))
    levels[0] = levels[1]


@torch.no_grad()
def calibrate(module: CountsDiffModule, x0: Tensor, missing: Tensor, categories: Tensor, continuous: Tensor) -> None:
    """Find how sure to be of counts, from cells that the network was not trained on.

    What is added to log dispersions is that under which these cells are as well calibrated as may be, and to the log-odds of
    zeros that under which there are as many of them; for a group of genes of which nothing is seen, that under which its counts
    are likeliest given all others.
    """
    if module.denoiser.log_calibration is not None:
        _calibrate_laws(module, x0, missing, categories, continuous)
    depth = module.denoiser.group_depth
    if depth is None:
        return
    depth.log_dispersion.zero_()
    parts = defaultdict(list)
    for group, *part in _hidden_groups(module, x0, missing, categories, continuous):
        parts[group].append(part)
    loss = module.denoiser.head.loss
    for group, of_group in parts.items():

        def loss_of(shift: float, group=group, of_group=of_group) -> float:
            depth.log_dispersion[group] = shift
            terms = [(loss(y, predict()) * hidden).sum(dtype=torch.float64) for y, hidden, predict in of_group]
            return float(torch.stack(terms).sum())

        best = minimize_scalar(loss_of, bounds=(-LARGEST_SHIFT, LARGEST_SHIFT), options={"xatol": 0.02}).x
        depth.log_dispersion[group] = best


def _calibrate_laws(
    module: CountsDiffModule, x0: Tensor, missing: Tensor, categories: Tensor, continuous: Tensor
) -> None:
    """Those of all genes, with half of the entries observed, then with the other half; by the PIT, which should be uniform.

    Not by the likelihood, which would make all laws wide for the sake of a few counts that are far out. Of zeros, which are rare,
    the PIT says little: how many there are does.
    """
    head, found = module.denoiser.head, module.denoiser.log_calibration
    assert found is not None
    found.zero_()
    # Spread over all: cells of one batch may stand together.
    n_cells = min(len(x0), CALIBRATED_CELLS)
    chosen = torch.arange(n_cells, device=x0.device) * len(x0) // max(n_cells, 1)
    generator = torch.Generator(x0.device).manual_seed(0)
    looks = []
    for _ in range(CALIBRATED_DRAWS):
        for some in chosen.split(_cells_together(module)):
            counts, lacking = x0[some], missing[some]
            t, null = torch.ones_like(counts[:, 0]), torch.zeros_like(lacking[:, 0])
            most = CALIBRATED_ENTRIES * len(some) // max(n_cells, 1)
            for observed in _halves(module, counts, generator):
                y, status = hide(counts, torch.zeros_like(counts[:, :1]), observed, lacking, generator)
                noised = NoisedCounts(counts - y, status, t, t, y, kept=t)
                look = module.generative(noised, null, categories[some], continuous[some])
                looks.append(_some_noised(y, status, most, **look, generator=generator))
    best = torch.inf
    for dispersion in DISPERSIONS:
        widened = [(y, outputs, replace(given, log_dispersion=dispersion), u) for y, outputs, given, u in looks]
        zero_odds = _zero_odds([(y, head.law(outputs, given)) for y, outputs, given, _ in widened])
        laws = ((y, head.law(outputs, replace(given, log_zero_odds=zero_odds)), u) for y, outputs, given, u in widened)
        pit = torch.cat([_pit(*law) for law in laws]).sort().values
        uniform = (torch.arange(len(pit), dtype=pit.dtype, device=pit.device) + 0.5) / len(pit)
        distance = float((pit - uniform).square().sum())
        if distance < best:
            best = distance
            found.copy_(torch.tensor([dispersion, zero_odds]))


def _cells_together(module: CountsDiffModule) -> int:
    """How many cells may be predicted at a time."""
    return max(1, min(CELLS_TOGETHER, BYTES_TOGETHER // (module.n_genes * module.denoiser.backbone.bytes_per_entry)))


def _zero_odds(laws: list[tuple[Tensor, Prediction]]) -> float:
    """What to add to the log-odds of zeros, so that as many are expected of all laws as there are among the counts."""
    logits = torch.cat([(law.log_zero - law.any_of(1.0).log()).double().flatten() for _, law in laws])
    n_zeros = sum(int((y == 0).sum()) for y, _ in laws)

    def too_many(odds: float) -> float:
        return float(torch.sigmoid(logits + odds).sum()) - n_zeros

    bounds = -LARGEST_ZERO_ODDS, LARGEST_ZERO_ODDS
    for bound, sign in zip(bounds, (1, -1), strict=True):
        if sign * too_many(bound) >= 0:  # even there: few zeros, or none
            return bound
    return brentq(too_many, *bounds, xtol=1e-3)


def _halves(module: CountsDiffModule, x0: Tensor, generator: torch.Generator) -> tuple[Tensor, ...]:
    """Which entries are shown as observed: half of them, then the other half; nothing, if the network never saw any."""
    half = torch.rand(x0.shape, generator=generator, device=x0.device) < 0.5
    return (half, ~half) if module.observed_training else (torch.zeros_like(half),)


def _some_noised(
    y: Tensor, status: Tensor, most: int, outputs: Tensor, given: HeadInput, generator: torch.Generator
) -> tuple[Tensor, Tensor, HeadInput, Tensor]:
    """Counts of some noised entries, what a head is given of them, as those of one cell, and a random number for each."""
    at = positions(status == NOISED)
    at = at[torch.randperm(len(at), generator=generator, device=at.device)[:most]]

    def chosen(values: Tensor) -> Tensor:
        return values.expand_as(y).reshape(-1).index_select(0, at)[None]

    largest = torch.as_tensor(given.largest, device=at.device)
    known = HeadInput(*map(chosen, (given.log_mean, given.xt, given.p, given.log_lost, largest)))
    some = torch.stack([chosen(output) for output in outputs])
    return chosen(y), some, known, torch.rand(len(at), generator=generator, device=at.device)[None]


def _pit(y: Tensor, law: Prediction, u: Tensor) -> Tensor:
    """Probability of fewer counts than there are, and of a random share of as many."""
    above = law.above(y)
    at_least = torch.where(y > 0, law.above((y - 1).clamp_min(0)), 1.0)
    return (1 - at_least + u * (at_least - above)).flatten()


def _hidden_groups(
    module: CountsDiffModule, x0: Tensor, missing: Tensor, categories: Tensor, continuous: Tensor
) -> Iterator[tuple[int, Tensor, Tensor, Callable[[], Prediction]]]:
    """Some cells at a time, and each group that some of them have beside others: its number, counts, its entries, and their law."""
    for some in torch.arange(len(x0), device=x0.device).split(_cells_together(module)):
        denoise = module.denoise_with(categories[some], continuous[some])
        counts, lacking = x0[some], missing[some]
        t, null = torch.ones_like(counts[:, 0]), torch.zeros_like(lacking[:, 0])
        for group, members in enumerate(module.group_members):
            hidden = members & ~lacking & (~lacking & ~members).any(1, keepdim=True)
            if bool(hidden.any()):
                status = torch.full_like(counts, OBSERVED).masked_fill(members, NOISED).masked_fill(lacking, MISSING)
                yield group, counts, hidden, partial(denoise, counts.masked_fill(members, 0), status, t, null)
