"""Draws from the model: of new cells, and of the ones at hand anew."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version

import numpy as np
import pandas as pd
import scipy.sparse as sp
import torch
from anndata import AnnData
from mudata import MuData
from scvi import REGISTRY_KEYS
from tqdm.auto import tqdm

from sccountsdiff.checks import check_keywords, whole_number
from sccountsdiff.data.covariates import check_covariates, continuous_values, encode
from sccountsdiff.data.messages import some_of
from sccountsdiff.diffusion import NOISED
from sccountsdiff.model.engine import FillMixin, Indices, as_dtype, choose_everything, count_dtype_of, unique_rows
from sccountsdiff.model.settings import (
    FILLING,
    GENERATING,
    Sampler,
    choose_batch_size,
    choose_seed,
    make_generator,
)


class GenerateMixin(FillMixin):
    """Generation of cells, with or without covariates, and predictive draws."""

    def generate(
        self,
        n_cells: int,
        covariates: Mapping[str, object] | pd.DataFrame | None = None,
        *,
        n_steps: int = 50,
        batch_size: int | None = None,
        seed: int | None = None,
        silent: bool = False,
        **sampling_kwargs,
    ) -> AnnData:
        """Draw new cells.

        Parameters
        ----------
        n_cells
            Number of cells.
        covariates
            A value for each covariate of the model, or a column of ``n_cells`` values for it. ``None`` generates
            without covariates (the null state, which models trained with ``p_uncond=0`` do not know).
        n_steps
            Reverse steps.
        batch_size
            Cells at a time. Same ``seed``, ``batch_size`` and number of cells, same integers.
        seed
            Seed; default: drawn from torch's global generator, and noted in ``uns``.
        silent
            Show no progress bar.
        **sampling_kwargs
            ``guidance``, ``attrition``, ``rounding``, ``final``, ``jump_length``, ``n_resamples`` and ``on_move`` as in
            :meth:`impute`.

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
        check_keywords("generate()", sampling_kwargs, GENERATING, "Arguments of sampling")
        sampler = Sampler(self.module, n_steps=n_steps, known=None, **sampling_kwargs)
        sampler.check_cells(n_cells)
        obs, categories, continuous = self._covariates_of(n_cells, covariates)
        seed = choose_seed(seed)
        batch_size = choose_batch_size(batch_size)
        device = self.module.device
        self.module.eval()

        blocks = []
        starts = range(0, n_cells, batch_size)
        for number, start in enumerate(tqdm(starts, desc="Generating", unit="block", disable=silent)):
            rows = slice(start, min(start + batch_size, n_cells))
            nothing = torch.zeros(rows.stop - start, len(self.gene_names), device=device, dtype=torch.float32)
            cells = self.module.read(
                {
                    REGISTRY_KEYS.X_KEY: nothing,
                    REGISTRY_KEYS.CAT_COVS_KEY: torch.from_numpy(categories[rows]),
                    REGISTRY_KEYS.CONT_COVS_KEY: torch.from_numpy(continuous[rows]),
                }
            )
            draw = sampler.draw(
                nothing,
                torch.full_like(nothing, NOISED),
                cells["categories"],
                cells["continuous"],
                make_generator(device, seed, number),
                rows,
            )
            blocks.append(sp.csr_matrix(draw.cpu().numpy()))
        generated = AnnData(sp.vstack(blocks, format="csr"), obs=obs, var=pd.DataFrame(index=pd.Index(self.gene_names)))
        noted = sampler.describe() | {"seed": seed, "batch_size": batch_size, "version": version("sccountsdiff")}
        generated.uns["sccountsdiff"] = {"generated": noted}
        return generated

    def posterior_predictive_sample(
        self,
        adata: AnnData | MuData | None = None,
        indices: Indices | None = None,
        *,
        n_samples: int = 1,
        n_folds: int = 10,
        batch_size: int | None = None,
        seed: int | None = None,
        silent: bool = False,
        unseen_to_null: bool = False,
        **sampling_kwargs,
    ) -> np.ndarray:
        """Draw every entry anew from the rest of its cell, fold by fold.

        Comparing such draws with the data shows whether the model's uncertainty can be trusted.

        Parameters
        ----------
        adata
            Data; default: the data of the model.
        indices
            Cells, in the order in which they are to come back.
        n_samples
            Draws.
        n_folds
            Each entry is drawn given the entries of the other folds.
        batch_size
            Cells at a time.
        seed
            Seed.
        silent
            Show no progress bar.
        unseen_to_null
            Treat cells with unseen categories as having no covariates instead of raising an error.
        **sampling_kwargs
            ``n_steps``, ``known``, ``guidance``, ``attrition``, ``rounding``, ``final``, ``jump_length``,
            ``n_resamples`` and ``on_move`` of :meth:`impute`.

        Returns
        -------
        Counts of the model's genes, ``(n_samples, cells, genes)``.

        Examples
        --------
        >>> model.posterior_predictive_sample(n_samples=2, n_folds=2, silent=True).shape == (2, *adata.shape)
        True
        """
        self._require_trained()
        n_samples, n_folds = whole_number("n_samples", n_samples), whole_number("n_folds", n_folds)
        check_keywords("posterior_predictive_sample()", sampling_kwargs, FILLING, "Arguments of sampling")
        sampler = Sampler(self.module, **{"known": self._known_default, **sampling_kwargs})
        rows, order = unique_rows(indices, self._counts_adata(adata))
        source = self._source(adata, unseen_to_null, rows)
        dtype = count_dtype_of(source.counts.dtype) if sampler.final == "sample" else np.dtype(np.float32)
        filling = self._fill(
            source,
            rows,
            choose_everything,
            sampler,
            n_folds=n_folds,
            n_samples=n_samples,
            batch_size=batch_size,
            seed=choose_seed(seed),
            silent=silent,
            what="Predictive draws",
        )
        blocks = [as_dtype(draws, dtype).reshape(n_samples, -1, len(self.gene_names)) for _, _, draws in filling]
        result = np.concatenate(blocks, axis=1)
        return result if order is None else result[:, order]

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
        columns = {key: _column(key, covariates[key], n_cells) for key in covariates}
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


def _column(key: str, value: object, n_cells: int) -> np.ndarray | list:
    """A value for all cells, or one for each."""
    if not pd.api.types.is_list_like(value):
        return [value] * n_cells
    if len(value) != n_cells:
        raise ValueError(f"covariates[{key!r}] has {len(value)} values for {n_cells} cells.")
    return np.asarray(value)
