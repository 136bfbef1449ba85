"""The one way in which cells are read and some of their entries predicted from the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from anndata import AnnData
from tqdm.auto import tqdm

from sccountsdiff.data.loading import CellSource
from sccountsdiff.data.splitting import row_blocks
from sccountsdiff.diffusion import ABSENT, KNOWN, NOISED
from sccountsdiff.model.sampler import Sampler, choose_batch_size, make_generator
from sccountsdiff.module import OBSERVED_KEY

_FOLDS = 2**32 - 1  # key of the generator that assigns folds; no draw has that number

ChooseSites = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""From rows, counts of the model's genes and which are absent, to which are to be filled in."""


class FillMixin:
    """Blocks of cells, folds of entries, draws with random numbers of their own."""

    def _fill(
        self,
        source: CellSource,
        rows: np.ndarray,
        choose: ChooseSites,
        n_folds: int,
        sampler: Sampler,
        n_samples: int,
        batch_size: int | None,
        seed: int,
        silent: bool,
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield, block by block, the counts as they are, the entries filled in, and ``(n_samples, entries)`` draws."""
        device = self.module.device
        for number, block in self._blocks(rows, batch_size, silent, "Imputing"):
            counts, tensors = source.read(block, OBSERVED_KEY)
            cells = self.module.read(tensors)
            x0, absent = cells["x0"], cells["absent"]
            filled = choose(block, source.select(counts), absent.cpu().numpy())
            sites = torch.from_numpy(filled).to(device)
            if n_folds > 1:
                generator = make_generator(device, seed, number, _FOLDS)
                fold_of = torch.randint(n_folds, sites.shape, generator=generator, device=device)
            draws = torch.zeros(n_samples, *x0.shape, device=device)
            for fold in range(n_folds):
                chosen = sites & (fold_of == fold) if n_folds > 1 else sites
                if not chosen.any():
                    continue
                status = torch.full_like(x0, KNOWN).masked_fill(absent, ABSENT).masked_fill(chosen, NOISED)
                for k in range(n_samples):
                    generator = make_generator(device, seed, number, k, fold)
                    draw = sampler.draw(x0, status, cells["categories"], cells["continuous"], generator)
                    draws[k][chosen] = draw[chosen]
            yield counts, filled, draws[:, sites].cpu().numpy()

    def _blocks(self, rows: np.ndarray, batch_size: int | None, silent: bool, what: str):
        blocks = list(row_blocks(rows, choose_batch_size(batch_size)))
        self.module.eval()
        return tqdm(blocks, desc=what, unit="block", disable=silent)

    @property
    def _known_default(self) -> str:
        return "clean" if self.module.observed_training else "noised"

    def _require_trained(self) -> None:
        if not self.is_trained:
            raise RuntimeError("The model is not trained yet: call `model.train()` first.")


def count_dtype_of(dtype: np.dtype) -> np.dtype:
    """The dtype of the counts, unless a draw may not fit into it."""
    if dtype.kind in "iu":
        return dtype if dtype.itemsize >= 4 else np.dtype(np.int32)
    return dtype if dtype.kind == "f" and dtype.itemsize >= 4 else np.dtype(np.float32)


def unique_rows(indices: Sequence[int] | None, data: AnnData) -> tuple[np.ndarray, np.ndarray | None]:
    """Sorted rows to compute, and where each of the ``indices`` is found among them."""
    if indices is None:
        return np.arange(data.n_obs), None
    indices = np.asarray(indices)
    if indices.dtype == bool:
        if indices.shape != (data.n_obs,):
            raise ValueError(f"Boolean `indices` must have one value for each of the {data.n_obs} cells.")
        indices = np.flatnonzero(indices)
    if len(indices) == 0:
        raise ValueError("`indices` names no cell.")
    if indices.min() < -data.n_obs or indices.max() >= data.n_obs:
        raise IndexError(f"`indices` must be positions among the {data.n_obs} cells.")
    rows, order = np.unique(indices % data.n_obs, return_inverse=True)
    return rows, order
