"""New cells, drawn from nothing."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
import torch
from anndata import AnnData
from scvi import REGISTRY_KEYS

from sccountsdiff.checks import whole_number
from sccountsdiff.data.covariates import check_covariates, continuous_values, encode
from sccountsdiff.data.messages import some_of
from sccountsdiff.diffusion import NOISED
from sccountsdiff.model.base import CountsDiffBase
from sccountsdiff.model.engine import OnMove, cell_blocks, choose_batch_size, choose_seed, draw_sites, make_generator
from sccountsdiff.model.settings import read_settings, takes_sampling_settings

N_STEPS = 50
"""Reverse steps: more than for imputation, as there is nothing observed to go by."""


class GenerateMixin(CountsDiffBase):
    """Generation of cells, with or without covariates."""

    @takes_sampling_settings("covariates", leave_out=("known",), n_steps=N_STEPS)
    @torch.inference_mode()
    def generate(
        self,
        n_cells: int,
        covariates: Mapping[str, object] | pd.DataFrame | None = None,
        *,
        batch_size: int | None = None,
        seed: int | None = None,
        silent: bool = False,
        on_move: OnMove | None = None,
        **sampling,
    ) -> AnnData:
        """Draw new cells.

        Parameters
        ----------
        n_cells
            Number of cells.
        covariates
            A value for each covariate of the model, or a column of ``n_cells`` values for it. ``None`` generates
            without covariates (the null state, which models trained with ``p_uncond=0`` do not know).
        **sampling
            Settings of sampling.
        batch_size
            Cells at a time. Same ``seed``, ``batch_size`` and number of cells, same integers.
        seed
            Seed; default: drawn from torch's global generator, and noted in ``uns``.
        silent
            Show no progress bar.
        on_move
            As in :meth:`impute`.

        Returns
        -------
        AnnData with counts in ``X`` (CSR), the covariates in ``obs``, and settings, seed and version in
        ``uns["sccountsdiff"]["generated"]``.

        Examples
        --------
        >>> cells = model.generate(3, seed=0, silent=True)
        >>> cells.shape == (3, adata.n_vars)
        True
        """
        self._require_trained()
        n_cells = whole_number("n_cells", n_cells)
        settings = read_settings(GenerateMixin.generate, sampling).resolve(self.module, generating=True)
        settings.attrition.check(settings.n_steps * settings.n_resamples, n_cells=n_cells)
        obs, categories, continuous = self._covariates_of(n_cells, covariates)
        seed = choose_seed(seed)
        batch_size = choose_batch_size(batch_size)
        blocks = []
        for number, rows in cell_blocks(self.module, np.arange(n_cells), batch_size, silent, "Generating"):
            nothing = torch.zeros(len(rows), self.module.n_genes, device=self.module.device, dtype=torch.float32)
            cells = self.module.read(
                {
                    REGISTRY_KEYS.X_KEY: nothing,
                    REGISTRY_KEYS.CAT_COVS_KEY: torch.from_numpy(categories[rows]),
                    REGISTRY_KEYS.CONT_COVS_KEY: torch.from_numpy(continuous[rows]),
                }
            )
            generator = make_generator(self.module.device, seed, number)
            status = torch.full_like(nothing, NOISED)
            drawn = draw_sites(self.module, cells, status, settings, generator, rows=rows, on_move=on_move)
            blocks.append(sp.csr_matrix(drawn.cpu().numpy()))
        generated = AnnData(sp.vstack(blocks, format="csr"), obs=obs, var=pd.DataFrame(index=pd.Index(self.gene_names)))
        note = settings.describe() | {"seed": seed, "batch_size": batch_size, "version": version("sccountsdiff")}
        generated.uns["sccountsdiff"] = {"generated": note}
        return generated

    def _covariates_of(
        self, n_cells: int, covariates: Mapping[str, object] | pd.DataFrame | None
    ) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
        """Table, codes and values of the covariates of cells to come."""
        index = pd.Index([f"cell_{i}" for i in range(n_cells)])
        keys = [*self.categories, *self.continuous_keys]
        if covariates is None:
            if not self.module.knows_null:
                raise ValueError(
                    f"Pass `covariates` with {', '.join(keys)}: the model was made with `p_uncond=0` and has never "
                    "seen cells without covariates."
                )
            # One past the last category is the null state.
            codes = np.tile(np.array([len(c) for c in self.categories.values()], dtype=np.int64), (n_cells, 1))
            continuous = np.zeros((n_cells, len(self.continuous_keys)))
            if not self.categories and self.continuous_keys:
                raise ValueError(
                    f"Pass `covariates` with {', '.join(self.continuous_keys)}, or `guidance=0` with any values, "
                    "to generate cells of a model whose covariates are all continuous."
                )
            return pd.DataFrame(index=index), codes, continuous
        if not isinstance(covariates, Mapping | pd.DataFrame):
            raise TypeError(f"`covariates` must be a dict or a DataFrame, not {covariates!r}.")
        columns = {str(key): _column(str(key), value, n_cells) for key, value in dict(covariates).items()}
        unknown = sorted(set(columns) - set(keys))
        lacking = [key for key in keys if key not in columns]
        if unknown or lacking:
            raise KeyError(
                f"`covariates` must name {', '.join(keys) or 'nothing: the model has none'}"
                + (f"; unknown: {', '.join(unknown)}" if unknown else "")
                + (f"; missing: {', '.join(lacking)}" if lacking else "")
                + "."
            )
        obs = pd.DataFrame(columns, index=index)
        check_covariates(obs, list(self.categories), name="covariates")
        check_covariates(obs, self.continuous_keys, continuous=True, name="covariates")
        codes = encode(obs, self.categories, unseen_to_null=True)
        for column, (key, known) in zip(codes.T, self.categories.items(), strict=True):
            unseen = pd.unique(obs.loc[column == len(known), key].astype(object))
            if len(unseen):
                advice = " Leave out `covariates` to generate cells without any." if self.module.knows_null else ""
                raise ValueError(
                    f"covariates[{key!r}] holds categories that the model was not trained on: "
                    f"{some_of(sorted(map(repr, unseen)), 10)}. "
                    f"It knows {some_of(list(map(repr, known.tolist())), 10)}.{advice}"
                )
        return obs, codes, continuous_values(obs, self.continuous_keys)


def _column(key: str, value: Any, n_cells: int) -> np.ndarray | list:
    """A value for all cells, or one for each."""
    if not pd.api.types.is_list_like(value):
        return [value] * n_cells
    if len(value) != n_cells:
        raise ValueError(f"covariates[{key!r}] has {len(value)} values for {n_cells} cells.")
    return np.asarray(value)
