"""What a call of ``impute`` is to do: complete, and checked, before any work starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sccountsdiff.data.reading import reads_sparse
from sccountsdiff.data.source import CellSource
from sccountsdiff.model.engine import ChooseSites, FilledBlock, OnMove, fill
from sccountsdiff.model.results import Layer, as_dtype, with_values
from sccountsdiff.model.settings import ResolvedSettings
from sccountsdiff.model.transform import Transform
from sccountsdiff.module import CountsDiffModule


@dataclass(frozen=True)
class Plan:
    """Which entries of which cells are filled in, how, and what layers are made of that.

    Attributes
    ----------
    source, rows
        The cells, and which of them.
    what, choose_sites, n_folds
        Entries to fill in, what they are called, and in how many folds it is done.
    settings, transforms, n_chains, batch_size, seed, silent, on_move
        How they are drawn, and what is shown of that.
    layers
        What is wanted, by the suffix of its name.
    draw_dtype
        Type of single draws.
    by_law
        Layers are of the predicted law, not of draws.
    min_value
        Values below are 0.
    fills_all
        An expectation may stand in every entry.
    """

    source: CellSource
    rows: np.ndarray
    what: str
    choose_sites: ChooseSites
    n_folds: int
    settings: ResolvedSettings
    transforms: Sequence[Transform]
    n_chains: int
    batch_size: int
    seed: int
    silent: bool
    on_move: OnMove | None
    layers: Mapping[str, Layer]
    draw_dtype: np.dtype
    by_law: bool
    min_value: float
    fills_all: bool

    @property
    def shape(self) -> tuple[int, int]:
        """Cells, and genes of the data."""
        return len(self.rows), self.source.counts.shape[1]

    @property
    def is_sparse(self) -> dict[str, bool]:
        """Which layers are made as CSR: as the counts are, unless it would take more memory than a dense array."""
        sparse = reads_sparse(self.source.counts)
        return {suffix: sparse and (layer.is_whole or not self.fills_all) for suffix, layer in self.layers.items()}

    @property
    def dense_bytes(self) -> int:
        """Memory that layers take which are dense because all zeros are filled in."""
        n_entries = self.shape[0] * self.shape[1]
        return sum(n_entries * layer.dtype.itemsize for layer in self.layers.values()) if self.fills_all else 0

    def blocks(
        self, module: CountsDiffModule, is_done: Callable[[int], bool] = lambda number: False
    ) -> Iterator[FilledBlock]:
        """Do it, block by block; those that are done are left out."""
        return fill(
            module,
            self.source,
            self.rows,
            self.choose_sites,
            self.settings,
            n_folds=self.n_folds,
            n_samples=self.n_chains,
            summaries=[layer.of_law for layer in self.layers.values()] if self.by_law else (),
            only_means=list(self.layers) == [""] and self.settings.final == "mean",
            batch_size=self.batch_size,
            seed=self.seed,
            silent=self.silent,
            on_move=self.on_move,
            is_done=is_done,
            transforms=self.transforms,
        )

    def _places(self, block: FilledBlock) -> np.ndarray:
        """Where in the flat rows of the data the values of a block stand."""
        places = block.places
        if self.source.in_order:
            return places
        n_cells, n_genes = block.sites.shape
        cells = np.repeat(np.arange(n_cells), np.count_nonzero(block.sites, axis=1))
        return cells * self.shape[1] + self.source.columns[places - n_genes * cells]

    def layers_of(self, block: FilledBlock) -> dict[str, np.ndarray]:
        """The rows of each layer, by its suffix: what was found, and the counts around it (0 around deviations)."""
        if self.by_law:
            found = dict(zip(self.layers, block.values, strict=True))
        else:
            found = {suffix: layer.of_draws(block.values) for suffix, layer in self.layers.items()}
        rows, places = {}, self._places(block)
        for suffix, values in found.items():
            around = np.zeros_like(block.counts) if suffix == "_sd" else block.counts
            kept = np.where(found[""] < self.min_value, 0, values) if self.min_value > 0 else values
            rows[suffix] = with_values(around, places, kept, self.layers[suffix].dtype)
        return rows

    def draws_of(self, block: FilledBlock) -> np.ndarray:
        """The draws of a block, (draws, cells, genes), with the counts around them."""
        draws = np.repeat(block.counts[None].astype(self.draw_dtype), self.n_chains, axis=0)
        draws.reshape(self.n_chains, -1)[:, self._places(block)] = as_dtype(block.values, self.draw_dtype)
        return draws
