"""The one way in which cells are read, block by block, and some of their entries drawn given the others."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from scvi import settings as scvi_settings
from torch import Tensor
from tqdm.auto import tqdm

from sccountsdiff.checks import whole_number
from sccountsdiff.data.rows import row_blocks
from sccountsdiff.data.source import CellSource
from sccountsdiff.diffusion import MISSING, NOISED, OBSERVED, Move, guide, reverse_walk, sample
from sccountsdiff.model.settings import ResolvedSettings, SamplingSettings
from sccountsdiff.module import CountsDiffModule

_FOLDS = 2**32 - 1  # key of the generator that assigns folds; no draw has that number

N_CHAINS, N_CHAIN_STEPS = 5, 15
"""Chains, and their steps, whose mean is the expectation of models that cannot give it in one pass."""

SAMPLE_ARGUMENTS = frozenset(inspect.signature(sample).parameters)

EXPECTATION_SEED = 0
"""Seed of these chains: an expectation has none of its own."""

ChooseSites: TypeAlias = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""From rows, counts of the model's genes and which are missing, to which are to be filled in."""

OnMove: TypeAlias = Callable[[Move, Tensor], None]


class FilledBlock(NamedTuple):
    """Some cells after entries of theirs were filled in.

    ``counts`` stand as in the data, all genes of it; ``sites`` says which of the model's genes were filled in; ``draws``,
    ``(n_samples, entries)``, are in its order, row by row.
    """

    counts: np.ndarray
    sites: np.ndarray
    draws: np.ndarray


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
    silent: bool = False,
    description: str = "Imputing",
    on_move: OnMove | None = None,
) -> Iterator[FilledBlock]:
    """Fill in the sites of each block of cells, fold by fold and draw by draw.

    Each draw has random numbers of its own, from seed, block, draw and fold: the same ones in whatever order they are made.
    """
    settings.attrition.check(settings.n_steps * settings.n_resamples, n_cells=source.n_cells)
    device = module.device
    for number, block in cell_blocks(module, rows, batch_size, silent, description):
        counts, tensors = source.read(block)
        cells = module.read(tensors)
        x0, missing = cells["x0"], cells["missing"]
        chosen = choose_sites(block, source.select(counts), missing.cpu().numpy())
        sites = torch.from_numpy(chosen).to(device)
        entries = sites.flatten().nonzero()[:, 0]
        fold_of = _folds(sites.shape, n_folds, make_generator(device, seed, number, _FOLDS))[entries]
        draws = x0.new_zeros(n_samples, len(entries))
        for fold in range(n_folds):
            members = (fold_of == fold).nonzero()[:, 0]
            if len(members) == 0:
                continue
            places = entries[members]
            status = torch.full_like(x0, OBSERVED).masked_fill(missing, MISSING)
            status = status.flatten().index_fill(0, places, NOISED).view(x0.shape)
            for k in range(n_samples):
                generator = make_generator(device, seed, number, k, fold)
                drawn = draw_sites(module, cells, status, settings, generator, rows=block, on_move=on_move)
                draws[k].index_copy_(0, members, drawn.flatten().index_select(0, places))
        yield FilledBlock(counts, chosen, draws.cpu().numpy())


def draw_sites(
    module: CountsDiffModule,
    cells: dict[str, Tensor],
    status: Tensor,
    settings: ResolvedSettings,
    generator: torch.Generator,
    *,
    rows: np.ndarray | slice | None = None,
    on_move: OnMove | None = None,
) -> Tensor:
    """One draw of the noised entries of some cells; ``rows`` say which cells of the data these are."""
    # A setting of the reverse process is an argument of `sample` of the same name.
    settings_of_sample = {name: value for name, value in vars(settings).items() if name in SAMPLE_ARGUMENTS}
    settings_of_sample["attrition"] = settings.attrition if rows is None else settings.attrition.of_cells(rows)
    settings_of_sample["known"] = settings.known or "clean"
    fixed = {"x": cells["x0"], "status": status} if settings_of_sample["known"] == "clean" else {}
    return sample(
        guide(module.denoise_with(cells["categories"], cells["continuous"], **fixed), settings.guidance),
        module.schedule,
        reverse_walk(settings.n_steps, settings.jump_length, settings.n_resamples),
        cells["x0"],
        status,
        generator=generator,
        on_move=on_move,
        **settings_of_sample,
    )


def expectation_settings(module: CountsDiffModule, guidance: float) -> tuple[ResolvedSettings, int]:
    """How to get expectations, and the number of chains whose mean they are."""
    n_steps, n_chains = 1, 1
    if not module.observed_training:  # in one pass from t = 1 all that is observed would be thinned away
        n_steps, n_chains = min(N_CHAIN_STEPS, (module.schedule.n_grid or N_CHAIN_STEPS + 1) - 1), N_CHAINS
    return SamplingSettings(n_steps=n_steps, final="mean", guidance=guidance).resolve(module), n_chains


def cell_blocks(
    module: CountsDiffModule, rows: np.ndarray, batch_size: int | None, silent: bool, description: str
) -> Iterable[tuple[int, np.ndarray]]:
    """Numbers and rows of the blocks in which cells are read, with a progress bar."""
    module.eval()
    blocks = list(row_blocks(rows, choose_batch_size(batch_size)))
    return tqdm(blocks, desc=description, unit="block", disable=silent)


def make_generator(device: torch.device, *keys: int) -> torch.Generator:
    """A generator of its own for each combination of as many keys, such as ``(seed, block, draw)``."""
    state = np.random.SeedSequence(keys).generate_state(1, np.uint64)[0]
    return torch.Generator(device).manual_seed(int(state))


def choose_batch_size(batch_size: int | None) -> int:
    """The batch size itself, or that of ``scvi.settings``."""
    return whole_number("batch_size", scvi_settings.batch_size if batch_size is None else batch_size)


def choose_seed(seed: int | None) -> int:
    """The seed itself, or one from torch's global stream, so that ``scvi.settings.seed`` governs it."""
    return int(torch.randint(2**31, (1,))) if seed is None else whole_number("seed", seed, least=0)


def _folds(shape: torch.Size, n_folds: int, generator: torch.Generator) -> Tensor:
    """The fold of each entry, row by row."""
    if n_folds == 1:
        return torch.zeros(shape.numel(), dtype=torch.long, device=generator.device)
    return torch.randint(n_folds, shape, generator=generator, device=generator.device).flatten()
