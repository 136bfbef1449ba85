"""New cells, drawn from nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
import torch
from anndata import AnnData
from scvi import REGISTRY_KEYS

from sccountsdiff import __version__
from sccountsdiff.checks import whole_number
from sccountsdiff.data.covariates import check_covariates, continuous_values, encode
from sccountsdiff.data.messages import some_of
from sccountsdiff.diffusion import NOISED
from sccountsdiff.model.base import CountsDiffBase
from sccountsdiff.model.engine import OnMove, cell_blocks, choose_batch_size, choose_seed, draw_sites, make_generator
from sccountsdiff.model.results import NOTES
from sccountsdiff.model.settings import read_settings, takes_sampling_settings
from sccountsdiff.model.streaming import BlockFolder

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
        out: str | Path | None = None,
        **sampling,
    ) -> AnnData | Path:
        """Draw new cells.

        Parameters
        ----------
        n_cells
            Number of cells.
        covariates
            Values of covariates, one for all cells or a column of ``n_cells``. Covariates that are not named are drawn,
            cell by cell, from training cells that have the values of the categorical ones that are; ``{}`` draws all of
            them. ``None`` generates without covariates (the null state, which models trained with ``p_uncond=0`` do not
            know).
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
        out
            Write the cells to this file, ``.h5ad`` or ``.zarr``, block by block and as in :meth:`impute`. The seed is then 0
            unless another is given.

        Returns
        -------
        ``out``, or AnnData with counts in ``X`` (CSR), the covariates in ``obs``, and settings, seed and version in
        ``uns["sccountsdiff"]["generated"]``.

        Examples
        --------
        >>> cells = model.generate(3, seed=0, silent=True)
        >>> cells.shape == (3, adata.n_vars)
        True

        Types as frequent as in the training data:

        >>> import sccountsdiff
        >>> cells = sccountsdiff.datasets.pbmc68k()[:60, :25].copy()
        >>> sccountsdiff.CountsDiffImputer.setup_anndata(cells, categorical_covariate_keys=["cell_type"])
        >>> of_types = sccountsdiff.CountsDiffImputer(cells)
        >>> of_types.train(max_epochs=1, enable_progress_bar=False)
        >>> "cell_type" in of_types.generate(3, {}, seed=0, silent=True).obs
        True
        """
        self._require_trained()
        n_cells = whole_number("n_cells", n_cells)
        settings = read_settings(GenerateMixin.generate, sampling).resolve(self.module, generating=True)
        settings.attrition.check(settings.n_steps * settings.n_resamples, n_cells=n_cells)
        seed = choose_seed(0 if seed is None and out is not None else seed)
        obs, categories, continuous = self._covariates_of(n_cells, covariates, seed)
        batch_size = choose_batch_size(batch_size)
        note = settings.describe() | {"seed": seed, "batch_size": batch_size, "version": __version__}
        blocks, folder = [], None
        if out is not None:
            of_cells = hashlib.sha256(categories.tobytes() + continuous.tobytes()).hexdigest()
            folder = BlockFolder(out, note | {"cells": of_cells, "n_cells": n_cells} | self._digests())
        is_done = (lambda number: False) if folder is None else folder.is_done
        for number, rows in cell_blocks(self.module, np.arange(n_cells), batch_size, silent, "Generating", is_done):
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
            made = sp.csr_matrix(drawn.cpu().numpy())
            if folder is not None:
                folder.save(number, {"X": made})
            else:
                blocks.append(made)
        names, uns = pd.DataFrame(index=pd.Index(self.gene_names)), {NOTES: {"generated": note}}
        if folder is not None:
            folder.finish(obs, names, uns)
            return folder.path
        return AnnData(sp.vstack(blocks, format="csr"), obs=obs, var=names, uns=uns)

    def _covariates_of(
        self, n_cells: int, covariates: Mapping[str, object] | pd.DataFrame | None, seed: int
    ) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
        """Table, codes and values of the covariates of cells to come."""
        index = pd.Index([f"cell_{i}" for i in range(n_cells)])
        keys = [*self.categories, *self.continuous_keys]
        if covariates is None:
            if not self.module.knows_null:
                raise ValueError(
                    f"Pass `covariates` with {', '.join(keys)}, or `covariates={{}}` to draw them: the model was made with "
                    "`p_uncond=0` and has never seen cells without covariates."
                )
            nothing = pd.DataFrame(index=index)  # columns that are not there are the null state
            codes = encode(nothing, self.categories, unseen_to_null=True)
            return nothing, codes, continuous_values(nothing, self.continuous_keys)
        if not isinstance(covariates, Mapping | pd.DataFrame):
            raise TypeError(f"`covariates` must be a dict or a DataFrame, not {covariates!r}.")
        columns = {str(key): _column(str(key), value, n_cells) for key, value in dict(covariates).items()}
        unknown = sorted(set(columns) - set(keys))
        if unknown:
            raise KeyError(
                f"`covariates` may name {', '.join(keys) or 'nothing: the model has none'}; unknown: {', '.join(unknown)}."
            )
        obs = pd.DataFrame(columns, index=index)
        named = {key: known for key, known in self.categories.items() if key in obs}
        check_covariates(obs, list(named), name="covariates")
        continuous = [key for key in self.continuous_keys if key in obs]
        check_covariates(obs, continuous, continuous=True, size_factor_key=self.size_factor_key, name="covariates")
        codes = encode(obs, named, unseen_to_null=True)
        for column, (key, known) in zip(codes.T, named.items(), strict=True):
            unseen = pd.unique(obs.loc[column == len(known), key].astype(object))
            if len(unseen):
                advice = " Leave out `covariates` to generate cells without any." if self.module.knows_null else ""
                raise ValueError(
                    f"covariates[{key!r}] holds categories that the model was not trained on: "
                    f"{some_of(sorted(map(repr, unseen)), 10)}. "
                    f"It knows {some_of(list(map(repr, known.tolist())), 10)}.{advice}"
                )
        if len(obs.columns) < len(keys):
            obs = self._with_drawn(obs, codes, list(named), seed)
        return obs, encode(obs, self.categories), continuous_values(obs, self.continuous_keys)

    def _with_drawn(self, obs: pd.DataFrame, codes: np.ndarray, named: list[str], seed: int) -> pd.DataFrame:
        """The table with all covariates: each cell has the others of a training cell with the same categories.

        ``codes`` are those of the ``named`` categorical covariates.
        """
        seen = getattr(self, "seen_covariates_", None)
        if seen is None:  # as of a model that was saved before they were kept
            lacking = [key for key in (*self.categories, *self.continuous_keys) if key not in obs]
            raise KeyError(
                f"The model does not know the covariates of its training cells: name {', '.join(lacking)} too."
            )
        places = [list(self.categories).index(key) for key in named]
        rng = np.random.default_rng([seed, 1])  # not the stream of the draws
        chosen = np.empty(len(obs), dtype=int)
        for combination in np.unique(codes, axis=0):
            cells = (codes == combination).all(1)
            alike = np.flatnonzero((seen["codes"][:, places] == combination).all(1))
            if not len(alike):
                values = {key: self.categories[key][code] for key, code in zip(named, combination, strict=True)}
                raise ValueError(
                    f"No training cell has {values}, from which to draw the other covariates: name them too."
                )
            weight = seen["n_cells"][alike]
            chosen[cells] = rng.choice(alike, size=cells.sum(), p=weight / weight.sum())
        drawn = {key: known[seen["codes"][chosen, k]] for k, (key, known) in enumerate(self.categories.items())}
        drawn |= {key: seen["values"][chosen, k] for k, key in enumerate(self.continuous_keys)}
        return obs.assign(**{key: column for key, column in drawn.items() if key not in obs})


def _column(key: str, value: Any, n_cells: int) -> np.ndarray | list:
    """A value for all cells, or one for each."""
    if not pd.api.types.is_list_like(value):
        return [value] * n_cells
    if len(value) != n_cells:
        raise ValueError(f"covariates[{key!r}] has {len(value)} values for {n_cells} cells.")
    return np.asarray(value)
