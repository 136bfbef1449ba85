"""Expected counts of deeper cells."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from mudata import MuData
from torch import Tensor

from sccountsdiff import __version__
from sccountsdiff.checks import check_number, one_of
from sccountsdiff.data.rows import Indices, unique_rows
from sccountsdiff.diffusion import NOISED, OBSERVED, guide, log_mean
from sccountsdiff.diffusion.rounding import checked_mean
from sccountsdiff.model.base import CountsDiffBase
from sccountsdiff.model.engine import (
    EXPECTATION_SEED,
    cell_blocks,
    choose_batch_size,
    draw_sites,
    expectation_settings,
    make_generator,
)
from sccountsdiff.model.results import NOTES
from sccountsdiff.model.settings import ResolvedSettings
from sccountsdiff.model.streaming import BlockFolder
from sccountsdiff.model.transform import read_transforms

NORMALISED_TOTAL = 1e4
"""Total to which cells are scaled before logarithms are taken, as is customary."""


LEAST_SHARE, MOST_SHARE = 1e-3, 0.999
"""Bounds of the share of its molecules that a cell can be taken to have: outside, there is nothing to learn from it."""


class DenoiseMixin(CountsDiffBase):
    """Denoising."""

    def denoise(
        self,
        adata: AnnData | MuData | None = None,
        indices: Indices | None = None,
        *,
        depth: float | None = None,
        target_sum: float | None = None,
        final: Literal["mean", "log_mean"] = "mean",
        unseen: bool = False,
        guidance: float = 1.0,
        layer: str | None = None,
        transform_covariates: Mapping[str, object] | None = None,
        transform_batch: object = None,
        unseen_to_null: bool = False,
        batch_size: int | None = None,
        silent: bool = False,
        out: str | Path | None = None,
    ) -> np.ndarray | Path:
        """Expected counts of the same cells, had they been sequenced deeper: ``depth`` times, or to one total for all.

        The cell is read as the thinned state of a deeper one; one pass at that level gives the counts to come, which
        are added to the ones at hand. The model expects the depth of its training cells and pulls others towards it, so
        totals grow by less than ``depth``. Missing entries are first filled in with what :meth:`impute` expects, in one
        pass (models trained with ``observed_training=False``: as the mean of 5 chains of 15 steps), and then grow like
        the others.

        Parameters
        ----------
        adata
            Data; default: the data of the model.
        indices
            Cells, in the order in which they are to come back.
        depth
            Depth in units of the cell's own; above 1. Default: 2, unless ``target_sum`` is given.
        target_sum
            Total of every cell over the model's genes. Each cell is read as the thinned state of one with that total, and
            scaled to it in the end; a cell that has more is only scaled.
        final
            ``"mean"``: expected counts. ``"log_mean"``: the guess that is best once cells are scaled to a total of ten
            thousand and ``log1p`` is taken, as for most analyses: ``exp(E[log(pseudo + count)]) - pseudo`` with ``pseudo``
            the expected total of the cell, or of its modality, divided by ten thousand. It is below the mean, most for rare counts, and so are
            totals.
        unseen
            Leave out the counts at hand and return only those to come: what a second sequencing run of the cell, that
            is ``depth - 1`` times as deep, would find.
        guidance
            Strength of the covariates.
        layer
            Layer with the counts, ``"X"`` for ``adata.X``; default: where the model's own are.
        transform_covariates, transform_batch
            As in :meth:`get_normalized_expression`; the counts at hand are carried over too.
        unseen_to_null
            Treat cells with unseen or unknown covariates, or without such a column, as having none instead of raising an
            error.
        batch_size
            Cells at a time.
        silent
            Show no progress bar.
        out
            Write the result to this file, ``.h5ad`` or ``.zarr``, as ``layers["denoised"]``, block by block and as in
            :meth:`impute`; not with ``indices``.

        Returns
        -------
        Expected counts of the model's genes, ``(cells, genes)``, or the guess that ``final`` asks for; or ``out``.

        Examples
        --------
        >>> bool((model.denoise(depth=3, silent=True) >= adata.X.toarray()).all())
        True
        """
        self._require_trained()
        if depth is not None and target_sum is not None:
            raise ValueError("`depth` and `target_sum` both say how deep cells are to be: pass one of them.")
        depth = 2.0 if depth is None else depth
        check_number("depth", depth, above=1)
        if target_sum is not None:
            check_number("target_sum", target_sum, above=0)
            if final == "log_mean" or unseen:
                raise ValueError("`target_sum` scales expected counts: leave out `final` and `unseen`.")
        one_of("final", final, ("mean", "log_mean"))
        settings, n_chains = expectation_settings(self.module, guidance)
        transforms = read_transforms(self, transform_covariates, transform_batch)
        if out is not None and indices is not None:
            raise ValueError("`out` holds all cells: leave out `indices`.")
        table = self._counts_adata(adata, layer)
        rows, order = unique_rows(indices, table)
        source = self._source(adata, unseen_to_null, rows, layer)

        def deepen(cells: dict[str, Tensor], status: Tensor, number: int) -> Tensor:
            if cells["missing"].any():
                generators = [make_generator(self.module.device, EXPECTATION_SEED, number, k) for k in range(n_chains)]
                cells = cells | {"x0": self._complete(cells, status, settings, generators)}
            x0 = cells["x0"]
            denoise = guide(self.module.denoise_with(cells["categories"], cells["continuous"]), guidance)
            share = torch.full_like(x0[:, 0], 1 / depth)  # of its molecules that the cell has
            if target_sum is not None:
                share = (x0.sum(1) / target_sum).clamp(LEAST_SHARE, MOST_SHARE)
            t = self.module.schedule.time_of(share.double()).to(x0.dtype)
            prediction = denoise(x0, torch.full_like(x0, NOISED), t)
            base = torch.zeros_like(x0) if unseen else x0
            deeper = base + checked_mean(prediction)
            if final == "log_mean":
                total = self.module.denoiser.totals(deeper)
                deeper = log_mean(prediction, base, pseudo=total / NORMALISED_TOTAL)
            if target_sum is not None:
                deeper = torch.where((x0.sum(1) >= target_sum)[:, None], x0, deeper)
                deeper = deeper * (target_sum / deeper.sum(1, keepdim=True).clamp_min(1e-6))
            return deeper

        batch_size, folder = choose_batch_size(batch_size), None
        if out is not None:
            note: dict[str, Any] = {
                "depth": depth,
                "target_sum": target_sum,
                "final": final,
                "unseen": unseen,
                "guidance": guidance,
            }
            note |= {"transform_covariates": [one.name for one in transforms], "batch_size": batch_size}
            note = {key: value for key, value in note.items() if value is not None}
            folder = BlockFolder(out, note | self._digests(source))
        is_done = (lambda number: False) if folder is None else folder.is_done
        blocks = []
        with torch.inference_mode():
            for number, block in cell_blocks(self.module, rows, batch_size, silent, "Denoising", is_done):
                cells = self.module.read(source.read(block)[1])
                status = torch.full_like(cells["x0"], OBSERVED).masked_fill(cells["missing"], NOISED)
                rounding = (
                    make_generator(self.module.device, EXPECTATION_SEED, number) if settings.known == "noised" else None
                )
                carried = [one(self.module, cells, status, guidance, rounding) for one in transforms]
                results = [deepen(some, status, number) for some in carried]
                deeper = torch.stack(results).mean(0).cpu().numpy()
                if folder is not None:
                    folder.save(number, {"denoised": deeper})
                else:
                    blocks.append(deeper)
        if folder is not None:
            note |= {"layers": ["denoised"], "version": __version__}
            names = pd.DataFrame(index=pd.Index(self.gene_names))
            folder.finish(table.obs, names, {NOTES: {"denoised": note}})
            return folder.path
        result = np.concatenate(blocks)
        return result if order is None else result[order]

    def _complete(
        self, cells: dict[str, Tensor], status: Tensor, settings: ResolvedSettings, generators: list[torch.Generator]
    ) -> Tensor:
        """The cells with missing entries filled in by what is expected.

        What the network says of missing entries was never trained. So they are predicted as hidden ones, at the depth of
        their cell, and the completed cell is what is read as a thinned one: observed and missing entries then grow alike,
        whatever depth the model expects.
        """
        x0, missing = cells["x0"], cells["missing"]
        chains = [draw_sites(self.module, cells, status, settings, generator) for generator in generators]
        return torch.where(missing, sum(chains) / len(chains), x0)
