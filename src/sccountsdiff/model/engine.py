"""The one way in which cells are read, block by block, and some of their entries drawn given the others."""

from __future__ import annotations

import inspect
import itertools
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from scvi import settings as scvi_settings
from torch import Tensor
from tqdm.auto import tqdm

from sccountsdiff.checks import whole_number
from sccountsdiff.data.rows import row_blocks
from sccountsdiff.data.source import CellSource
from sccountsdiff.diffusion import (
    MISSING,
    NOISED,
    OBSERVED,
    Move,
    Outcome,
    Prediction,
    guide,
    indicators,
    reverse_walk,
    sample,
    step_times,
)
from sccountsdiff.diffusion.host import positions_of
from sccountsdiff.diffusion.prediction import numbers
from sccountsdiff.diffusion.rounding import check_mean
from sccountsdiff.model.settings import ResolvedSettings, SamplingSettings
from sccountsdiff.model.transform import KEEP, Transform
from sccountsdiff.module import CountsDiffModule

logger = logging.getLogger("sccountsdiff")

LONG_WORK = 60.0
"""Seconds of work from which on its length is said."""

_FOLDS, _CARRIED = 2**32 - 1, 2**32 - 2  # keys of generators that assign folds and round; no draw has these numbers

N_CHAINS, N_CHAIN_STEPS = 5, 15
"""Chains, and their steps, whose mean is the expectation of models that cannot give it in one pass."""

SAMPLE_ARGUMENTS = frozenset(inspect.signature(sample).parameters)

EXPECTATION_SEED = 0
"""Seed of these chains: an expectation has none of its own."""

ENTRIES_TOGETHER = {"cpu": 2**18}
"""Entries of cells up to which several chains are walked together, so that a device has enough to do, by its type."""

BYTES_TOGETHER = 2**31
"""The same of other devices, in bytes."""

ChooseSites: TypeAlias = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""From rows, counts of the model's genes and which are missing, to which are to be filled in."""

Summary: TypeAlias = Callable[[Outcome], Tensor]
"""What is wanted of the law of entries over all chains, such as their mean; one number for each."""

OnMove: TypeAlias = Callable[[Move, Tensor], None]


class Chain(NamedTuple):
    """A draw to be made: cells, the status of each of their entries, and random numbers of its own if it takes any."""

    cells: dict[str, Tensor]
    status: Tensor
    generator: torch.Generator | None


class Fold(NamedTuple):
    """Entries that are filled in together, given all others: which they are, and where in the cells (``None``: all of these).

    ``members`` says where they are among the entries of all folds (``None``: there are no others).
    """

    number: int
    noised: Tensor
    places: Tensor | None
    members: Tensor | None

    def status(self, at_rest: Tensor) -> Tensor:
        """The status of all entries: noised are those that are filled in."""
        return at_rest * numbers(~self.noised, at_rest.dtype)  # the value of `NOISED` is 0

    def of(self, values: Tensor) -> Tensor:
        """Its entries of all of the cells (cells, genes), row by row."""
        return values.flatten() if self.places is None else values.flatten().index_select(0, self.places)

    def put(self, values: Tensor, found: Tensor) -> Tensor:
        """What was found of its entries (..., entries), among the values of all folds."""
        return found if self.members is None else values.index_copy_(1, self.members, found)


class FilledBlock(NamedTuple):
    """Some cells after entries of theirs were filled in.

    ``counts`` stand as in the data, all genes of it; ``sites`` says which of the model's genes were filled in, and ``places`` where
    these are, row by row; ``values``, in that order, are the draws, ``(n_samples, entries)``, or what was asked for of their law.
    """

    number: int
    counts: np.ndarray
    sites: np.ndarray
    places: np.ndarray
    values: np.ndarray


def every_entry(rows: np.ndarray, counts: np.ndarray, missing: np.ndarray) -> np.ndarray:
    """All entries are to be filled in."""
    return np.ones(missing.shape, dtype=bool)


@torch.inference_mode()
def fill(
    module: CountsDiffModule,
    source: CellSource,
    rows: np.ndarray,
    choose_sites: ChooseSites,
    settings: ResolvedSettings,
    *,
    seed: int,
    n_folds: int = 1,
    n_samples: int = 1,
    batch_size: int | None = None,
    summaries: Sequence[Summary] = (),
    only_means: bool = False,
    silent: bool = False,
    description: str = "Imputing",
    on_move: OnMove | None = None,
    is_done: Callable[[int], bool] = lambda number: False,
    transforms: Sequence[Transform] = (KEEP,),
) -> Iterator[FilledBlock]:
    """Fill in the sites of each block of cells, fold by fold and draw by draw; small ones together.

    Each draw has random numbers of its own, from seed, block, draw and fold: the same ones in whatever order they are made.
    Blocks whose numbers are done are left out. With ``summaries``, the values are these, of the law of each entry over all
    chains, in place of draws; with ``only_means``, they are means, for which less has to be known. With several
    ``transforms``, draws take them in turn, and expectations are those under all of them, averaged.
    """
    settings.attrition.check(settings.n_steps * settings.n_resamples, n_cells=source.n_cells)
    # With one draw that is an expectation, it is all that is asked for.
    is_one_pass = settings.is_deterministic and settings.final == "mean" and n_samples == 1 and on_move is None
    is_one_pass = is_one_pass and (only_means or not summaries)
    of_laws = bool(summaries) and not is_one_pass
    draw: Callable[..., Tensor] = partial(draw_sites, module, settings=settings, on_move=on_move, only_mean=only_means)
    if is_one_pass:
        draw = lambda cells, status, **_: expected_counts(module, cells, status, settings.guidance)
    device = module.device
    absent = torch.from_numpy(np.flatnonzero(~source.present)).to(device)
    # Genes are in folds as a whole, the same in all cells: what is known of cells that are observed in the same genes is
    # computed once, and cells can be compared.
    shuffled = torch.randperm(module.n_genes, generator=make_generator(device, seed, _FOLDS), device=device)
    fold_of = (shuffled % n_folds).cpu().numpy()
    for number, block in cell_blocks(module, rows, batch_size, silent, description, is_done):
        counts, tensors = source.read(block)
        cells = module.read(tensors)
        x0, missing = cells["x0"], cells["missing"]
        is_missing = missing.cpu().numpy()
        chosen = choose_sites(block, source.select(counts), is_missing)
        at_rest = torch.full_like(x0, OBSERVED)
        if is_missing.any():
            at_rest = at_rest.masked_fill(missing, MISSING)
        # Genes that the data lacks are drawn along: networks trained on complete cells never saw a missing entry.
        at_rest[:, absent] = NOISED
        entries = np.flatnonzero(chosen)
        values = x0.new_empty(len(summaries) or n_samples, len(entries))
        folds = list(_folds(chosen, entries, fold_of, n_folds, device))
        # Draws take the transforms in turn; of expectations, the mean over all is taken.
        n_each = 1 if settings.final == "sample" and not summaries else len(transforms)

        def chains(number=number, cells=cells, at_rest=at_rest, folds=folds, n_each=n_each) -> Iterator[Chain]:
            for fold in folds:
                status = fold.status(at_rest)
                keys = device, seed, number
                rounding = make_generator(*keys, _CARRIED, fold.number) if settings.known == "noised" else None
                carried = [one(module, cells, status, settings.guidance, rounding) for one in transforms]
                for k, j in itertools.product(range(n_samples), range(n_each)):
                    generator = None if is_one_pass else make_generator(*keys, k, fold.number)
                    yield Chain(carried[(k + j) % len(carried)], status, generator)

        most = ENTRIES_TOGETHER.get(device.type, BYTES_TOGETHER // module.denoiser.backbone.bytes_per_entry)
        n_together = 1 if on_move is not None else most // x0.numel()
        walked = _walk_together(draw, chains(), block, n_together, to_last=of_laws)
        for fold in folds:
            of_fold = itertools.islice(walked, n_samples * n_each)
            if of_laws:
                (chain, *_), lasts = zip(*of_fold, strict=True)
                law = Outcome.stack(lasts)
                if fold.places is not None and len(absent):  # which are drawn along
                    law = law.of(torch.searchsorted(positions_of(NOISED, chain.status), fold.places))
                found = torch.stack([summarise(law).to(x0.dtype) for summarise in summaries])
            else:
                draws = torch.stack([fold.of(drawn) for _, drawn in of_fold])  # no more of each is kept
                found = draws if n_each == 1 else draws.unflatten(0, (n_samples, n_each)).mean(1)
            values = fold.put(values, found)
        if is_one_pass:
            check_mean(values)
        yield FilledBlock(number, counts, chosen, entries, values.cpu().numpy())


def _walk_together(
    draw: Callable[..., Tensor], chains: Iterator[Chain], rows: np.ndarray, n_together: int, to_last: bool
) -> Iterator[tuple[Chain, Any]]:
    """Each chain with the counts that it ends at, or with those before its last draw and the law of the rest; some at a time."""
    while some := list(itertools.islice(chains, max(1, n_together))):
        cells, status, generators = some[0].cells, some[0].status, [chain.generator for chain in some]
        if len(some) > 1:
            cells = {name: torch.cat([chain.cells[name] for chain in some]) for name in cells}
            status = torch.cat([chain.status for chain in some])
        last: list[tuple[Tensor, Prediction]] = []
        on_last = (lambda n, births, last=last: last.append((n, births))) if to_last else None
        drawn = draw(cells, status, generator=generators, rows=np.tile(rows, len(some)), on_last=on_last)
        yield from zip(some, last if to_last else drawn.chunk(len(some)), strict=True)


def expected_counts(module: CountsDiffModule, cells: dict[str, Tensor], status: Tensor, guidance: float) -> Tensor:
    """Expected counts of noised entries given the observed ones, in one pass from t = 1 (cells, genes); of others, anything."""
    denoise = guide(module.denoise_with(cells["categories"], cells["continuous"], only_mean=True), guidance)
    return denoise(cells["x0"] * indicators(status)[0], status, torch.ones_like(status[:, 0])).mean


def draw_sites(
    module: CountsDiffModule,
    cells: dict[str, Tensor],
    status: Tensor,
    settings: ResolvedSettings,
    generator: torch.Generator | Sequence[torch.Generator],
    *,
    rows: np.ndarray | slice | None = None,
    on_move: OnMove | None = None,
    on_last: Callable[[Tensor, Prediction], None] | None = None,
    only_mean: bool = False,
) -> Tensor:
    """One draw of the noised entries of some cells; ``rows`` say which cells of the data these are.

    With several generators, each draws its share of the cells (:func:`~sccountsdiff.diffusion.sample`).
    With ``only_mean``, no more than the mean is asked for of the last law.
    """
    # A setting of the reverse process is an argument of `sample` of the same name.
    settings_of_sample = {name: value for name, value in vars(settings).items() if name in SAMPLE_ARGUMENTS}
    settings_of_sample["attrition"] = settings.attrition if rows is None else settings.attrition.of_cells(rows)
    settings_of_sample["known"] = settings.known or "clean"
    fixed = {"x": cells["x0"], "status": status} if settings_of_sample["known"] == "clean" else {}
    times = step_times(module.schedule, settings.n_steps, settings.spacing)
    walk = reverse_walk(settings.n_steps, settings.jump_length, settings.n_resamples, times=times)
    only_mean = len(walk) == 1 and settings.final == "mean" and (only_mean or on_last is None)
    denoise = module.denoise_with(cells["categories"], cells["continuous"], **fixed, only_mean=only_mean)
    return sample(
        guide(denoise, settings.guidance),
        module.schedule,
        walk,
        cells["x0"],
        status,
        generator=generator,
        on_move=on_move,
        on_last=on_last,
        **settings_of_sample,
    )


def expectation_settings(module: CountsDiffModule, guidance: float) -> tuple[ResolvedSettings, int]:
    """How to get expectations, and the number of chains whose mean they are."""
    n_steps, n_chains = 1, 1
    if not module.observed_training:  # in one pass from t = 1 all that is observed would be thinned away
        n_steps, n_chains = min(N_CHAIN_STEPS, (module.schedule.n_grid or N_CHAIN_STEPS + 1) - 1), N_CHAINS
    return SamplingSettings(n_steps=n_steps, final="mean", guidance=guidance).resolve(module), n_chains


def cell_blocks(
    module: CountsDiffModule,
    rows: np.ndarray,
    batch_size: int | None,
    silent: bool,
    description: str,
    is_done: Callable[[int], bool] = lambda number: False,
) -> Iterator[tuple[int, np.ndarray]]:
    """Numbers and rows of the blocks in which cells are read, but for those that are done, with a progress bar.

    After the first block, how long the rest will take is said if it is long.
    """
    module.eval()
    blocks = [(number, block) for number, block in row_blocks(rows, choose_batch_size(batch_size))]
    left = [(number, block) for number, block in blocks if not is_done(number)]
    n_left, start = sum(len(block) for _, block in left), time.perf_counter()
    with tqdm(total=len(rows), initial=len(rows) - n_left, desc=description, unit="cell", disable=silent) as bar:
        for position, (number, block) in enumerate(left):
            yield number, block
            bar.update(len(block))
            if position == 0 and (seconds := (time.perf_counter() - start) * (n_left / len(block) - 1)) > LONG_WORK:
                logger.info("%s %d cells: about %s to go.", description, n_left, duration(seconds))


def duration(seconds: float) -> str:
    """A length of time in words.

    Examples
    --------
    >>> duration(40), duration(400), duration(40_000)
    ('40 s', '7 min', '11.1 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def make_generator(device: torch.device, *keys: int) -> torch.Generator:
    """A generator of its own for each combination of as many keys, such as ``(seed, block, draw)``."""
    state = np.random.SeedSequence(keys).generate_state(1, np.uint64)[0]
    return torch.Generator(device).manual_seed(int(state))


def choose_batch_size(batch_size: int | None) -> int:
    """The batch size itself, or that of ``scvi.settings``."""
    return whole_number("batch_size", scvi_settings.batch_size if batch_size is None else batch_size)


def choose_seed(seed: int | None) -> int:
    """The seed itself, or one from torch's global stream, so that ``scvi.settings.seed`` governs it."""
    if seed is None:
        return int(torch.randint(2**31, (1,)))
    return whole_number("seed", seed, least=0)


def _folds(
    chosen: np.ndarray, entries: np.ndarray, fold_of: np.ndarray, n_folds: int, device: torch.device
) -> Iterator[Fold]:
    """The folds that have entries; ``fold_of`` says in which each gene is."""
    for number in range(n_folds):
        noised, places, members = chosen, entries, None
        if n_folds > 1:
            noised = chosen & (fold_of == number)
            places = np.flatnonzero(noised)
            members = torch.from_numpy(np.flatnonzero(noised.reshape(-1)[entries])).to(device)
        if len(places):
            somewhere = None if len(places) == chosen.size else torch.from_numpy(places).to(device)
            yield Fold(number, torch.from_numpy(noised).to(device), somewhere, members)
