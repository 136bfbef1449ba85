"""New cells from the model."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version

import numpy as np
import pandas as pd
import scipy.sparse as sp
import torch
from anndata import AnnData
from scvi import REGISTRY_KEYS
from tqdm.auto import tqdm

from sccountsdiff.data.loading import encode
from sccountsdiff.data.validation import check_covariates
from sccountsdiff.diffusion import NOISED
from sccountsdiff.model.sampler import Sampler, choose_batch_size, choose_seed, make_generator, require_positive


class GenerateMixin:
    """Generation of cells, with or without covariates."""

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
            without covariates (the null state).
        n_steps
            Reverse steps.
        batch_size
            Cells at a time.
        seed
            Seed; default: drawn from torch's global generator, and noted in ``uns``.
        silent
            Show no progress bar.
        **sampling_kwargs
            ``guidance``, ``attrition``, ``rounding``, ``final``, ``jump_length``, ``n_resamples`` and ``on_move`` as in
            :meth:`impute`.

        Returns
        -------
        AnnData with counts in ``X`` (CSR) and the covariates in ``obs``.

        Examples
        --------
        >>> cells = model.generate(3, seed=0, silent=True)
        >>> cells.shape == (3, adata.n_vars)
        True
        """
        self._require_trained()
        require_positive(n_cells=n_cells)
        sampler = Sampler(self.module, n_steps, **{"known": self._known_default, **sampling_kwargs})
        obs, categories, continuous = self._covariates_of(n_cells, covariates)
        seed = choose_seed(seed)
        batch_size = choose_batch_size(batch_size)
        device = self.module.device
        self.module.eval()

        blocks = []
        starts = range(0, n_cells, batch_size)
        for number, start in enumerate(tqdm(starts, desc="Generating", unit="block", disable=silent)):
            rows = slice(start, min(start + batch_size, n_cells))
            nothing = torch.zeros(rows.stop - start, len(self.gene_names), device=device)
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
            )
            blocks.append(sp.csr_matrix(draw.cpu().numpy()))
        generated = AnnData(sp.vstack(blocks, format="csr"), obs=obs, var=pd.DataFrame(index=pd.Index(self.gene_names)))
        generated.uns["sccountsdiff"] = sampler.describe() | {"seed": seed, "version": version("sccountsdiff")}
        return generated

    def _covariates_of(
        self, n_cells: int, covariates: Mapping[str, object] | pd.DataFrame | None
    ) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
        """Table, codes and values of the covariates of cells to come."""
        index = pd.Index([f"cell_{i}" for i in range(n_cells)])
        keys = [*self.categories, *self.continuous_keys]
        if covariates is None:
            # One past the last category is the null state.
            codes = np.tile(np.array([len(c) for c in self.categories.values()], dtype=np.int64), (n_cells, 1))
            continuous = np.zeros((n_cells, len(self.continuous_keys)), dtype=np.float32)
            if not self.categories and self.continuous_keys:
                raise ValueError(
                    f"Pass `covariates` with {', '.join(self.continuous_keys)}, or `guidance=0` with any values, "
                    "to generate cells of a model whose covariates are all continuous."
                )
            return pd.DataFrame(index=index), codes, continuous
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
        check_covariates(obs, list(self.categories), self.continuous_keys)
        return obs, encode(obs, self.categories), obs[self.continuous_keys].to_numpy(dtype=np.float32)


def _column(key: str, value: object, n_cells: int) -> np.ndarray | list:
    """A value for all cells, or one for each."""
    if not pd.api.types.is_list_like(value):
        return [value] * n_cells
    if len(value) != n_cells:
        raise ValueError(f"covariates[{key!r}] has {len(value)} values for {n_cells} cells.")
    return np.asarray(value)
