"""Cells as points, for neighbours, clusters and plots."""

from __future__ import annotations

import numpy as np
import torch
from anndata import AnnData
from mudata import MuData

from sccountsdiff.data.rows import Indices, unique_rows
from sccountsdiff.diffusion import MISSING, NOISED, OBSERVED
from sccountsdiff.model.base import CountsDiffBase
from sccountsdiff.model.engine import cell_blocks
from sccountsdiff.nn.backbone import hidden_units


class LatentMixin(CountsDiffBase):
    """Embedding of cells."""

    def get_latent_representation(
        self,
        adata: AnnData | MuData | None = None,
        indices: Indices | None = None,
        *,
        use_covariates: bool = False,
        layer: str | None = None,
        unseen_to_null: bool = False,
        batch_size: int | None = None,
        silent: bool = False,
    ) -> np.ndarray:
        """A point for each cell: the last hidden layer of the network when it is shown all that is observed.

        Cells that are alike are near each other, whatever their depth and, of a MuData, whichever modalities they have.

        Parameters
        ----------
        adata
            Data; default: the data of the model.
        indices
            Cells, in the order in which they are to come back.
        use_covariates
            Tell the network the covariates of each cell. By default it is told none: what they have to do with the counts is
            then still to be seen in the cell, but not what they are.
        layer
            Layer with the counts, ``"X"`` for ``adata.X``; default: where the model's own are.
        unseen_to_null
            With ``use_covariates``: treat cells with unseen or unknown covariates, or without such a column, as having none
            instead of raising an error.
        batch_size
            Cells at a time.
        silent
            Show no progress bar.

        Returns
        -------
        Array of shape ``(cells, n_hidden)``, for ``adata.obsm`` and ``scanpy.pp.neighbors(adata, use_rep=...)``.

        Examples
        --------
        >>> adata.obsm["X_countsdiff"] = model.get_latent_representation(silent=True)
        >>> adata.obsm["X_countsdiff"].shape[0] == adata.n_obs
        True
        """
        self._require_trained()
        module = self.module
        if not (use_covariates or module.knows_null):
            raise ValueError(
                "This model was made with `p_uncond=0` and has never seen cells without covariates: pass "
                "`use_covariates=True`, or train one with `p_uncond` above 0."
            )
        rows, order = unique_rows(indices, self._counts_adata(adata, layer))
        source = self._source(adata, unseen_to_null or not use_covariates, rows, layer)
        # A network that was never shown a count as it is has seen it with next to no noise.
        shown, time = (OBSERVED, 1.0) if module.observed_training else (NOISED, 1e-4)
        blocks = []
        with torch.inference_mode(), hidden_units(module.denoiser.backbone) as seen:
            for _, block in cell_blocks(module, rows, batch_size, silent, "Embedding"):
                cells = module.read(source.read(block)[1])
                x0 = cells["x0"]
                status = torch.full_like(x0, shown).masked_fill(cells["missing"], MISSING)
                denoise = module.denoise_with(cells["categories"], cells["continuous"])
                null = torch.full((len(x0),), not use_covariates, device=x0.device)
                denoise(x0, status, torch.full((len(x0),), time, device=x0.device), null)
                blocks.append(seen.pop().cpu().numpy())
        result = np.concatenate(blocks)
        return result if order is None else result[order]
