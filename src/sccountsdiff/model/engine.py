"""The one way in which cells are read and some of their entries predicted from the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from tqdm.auto import tqdm

from sccountsdiff.data.source import CellSource
from sccountsdiff.data.splitting import row_blocks
from sccountsdiff.diffusion import MISSING, NOISED, OBSERVED
from sccountsdiff.model.settings import Sampler, choose_batch_size, make_generator
from sccountsdiff.module import OBSERVED_KEY

_FOLDS = 2**32 - 1  # key of the generator that assigns folds; no draw has that number

Indices: TypeAlias = "Sequence[int] | Sequence[str] | Sequence[bool] | np.ndarray | slice"
"""Cells by position, by name, as a slice, or as a boolean for each cell."""

ChooseSites = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""From rows, counts of the model's genes and which are missing, to which are to be filled in."""


def choose_everything(rows: np.ndarray, counts: np.ndarray, missing: np.ndarray) -> np.ndarray:
    """All entries are to be filled in."""
    return np.ones(missing.shape, dtype=bool)


class FillMixin:
    """Blocks of cells, folds of entries, draws with random numbers of their own."""

    def _fill(
        self,
        source: CellSource,
        rows: np.ndarray,
        choose: ChooseSites,
        sampler: Sampler,
        *,
        seed: int,
        n_folds: int = 1,
        n_samples: int = 1,
        batch_size: int | None = None,
        silent: bool = False,
        what: str = "Imputing",
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield, block by block, the counts as they are, the entries filled in, and ``(n_samples, entries)`` draws.

        The entries filled in are a boolean matrix of cells x the model's genes; draws are in its order, row by row.
        """
        sampler.check_cells(source.n_cells)
        device = self.module.device
        for number, block in self._blocks(rows, batch_size, silent, what):
            counts, tensors = source.read(block, OBSERVED_KEY)
            cells = self.module.read(tensors)
            x0, missing = cells["x0"], cells["missing"]
            filled = choose(block, source.select(counts), missing.cpu().numpy())
            sites = torch.from_numpy(filled).to(device)
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
                    draw = sampler.draw(x0, status, cells["categories"], cells["continuous"], generator, block)
                    draws[k].index_copy_(0, members, draw.flatten().index_select(0, places))
            yield counts, filled, draws.cpu().numpy()

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


def _folds(shape: torch.Size, n_folds: int, generator: torch.Generator) -> torch.Tensor:
    """The fold of each entry, row by row."""
    if n_folds == 1:
        return torch.zeros(shape.numel(), dtype=torch.long, device=generator.device)
    return torch.randint(n_folds, shape, generator=generator, device=generator.device).flatten()


def count_dtype_of(dtype: np.dtype) -> np.dtype:
    """The dtype of the counts, unless a draw may not fit into it."""
    if dtype.kind in "iu":
        return dtype if dtype.itemsize >= 4 else np.dtype(np.int32)
    return dtype if dtype.kind == "f" and dtype.itemsize >= 4 else np.dtype(np.float32)


def as_dtype(draws: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Draws in another type; an error if that is too small for them."""
    if dtype.kind in "iu" and draws.size and draws.max() >= np.iinfo(dtype).max:
        raise ValueError(
            f"A draw of {draws.max():g} does not fit into the type of the counts, {dtype}. If it has run away, use less "
            "`guidance`; otherwise convert the counts to float64."
        )
    return draws.astype(dtype)


def unique_rows(indices: Indices | None, data: AnnData) -> tuple[np.ndarray, np.ndarray | None]:
    """Sorted rows to compute, and where each of the ``indices`` is found among them (``None``: in this order)."""
    if indices is None:
        return np.arange(data.n_obs), None
    positions = _positions(indices, data)
    if len(positions) == 0:
        raise ValueError("`indices` names no cell.")
    rows, order = np.unique(positions, return_inverse=True)
    return rows, None if np.array_equal(rows, positions) else order


def _positions(indices: Indices, data: AnnData) -> np.ndarray:
    """Position of each cell that is asked for, counted from the first."""
    n_cells = data.n_obs
    if isinstance(indices, slice):
        return np.arange(n_cells)[indices]
    asked = np.asarray(indices)
    if asked.ndim == 1 and asked.size == 0:
        return asked.astype(np.int64)
    if asked.ndim == 1 and asked.dtype == bool:
        if len(asked) != n_cells:
            raise ValueError(f"Boolean `indices` must have one value for each of the {n_cells} cells.")
        return np.flatnonzero(asked)
    if asked.ndim == 1 and asked.dtype.kind in "iu":
        if asked.min() < -n_cells or asked.max() >= n_cells:
            raise IndexError(f"`indices` must be positions among the {n_cells} cells.")
        return asked.astype(np.int64) % n_cells
    if asked.ndim == 1 and pd.api.types.infer_dtype(asked) == "string":
        if not data.obs_names.is_unique:
            raise ValueError("adata.obs_names are not unique: pass positions as `indices`, not names.")
        positions = data.obs_names.get_indexer(asked)
        if (positions < 0).any():
            raise KeyError(f"`indices` names cell {str(asked[positions < 0][0])!r}, which is not in adata.obs_names.")
        return positions
    found = f"{asked.dtype} of shape {asked.shape}" if isinstance(indices, np.ndarray) else repr(indices)
    raise ValueError(
        "`indices` must be a list (or one-dimensional array) of whole numbers, of names in adata.obs_names or of a "
        f"boolean for each cell, or a slice; found {found}."
    )
