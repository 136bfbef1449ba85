"""What a model expects of cells: deeper ones, every entry given the others, their likelihood."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from mudata import MuData

from sccountsdiff.diffusion import ABSENT, NOISED, guide, log_likelihood
from sccountsdiff.model.fill import FillMixin, count_dtype_of, unique_rows
from sccountsdiff.model.sampler import Sampler, choose_seed, make_generator, require_positive
from sccountsdiff.module import OBSERVED_KEY


class ExpectMixin(FillMixin):
    """Denoising, expected expression, predictive draws and likelihood."""

    def denoise(
        self,
        adata: AnnData | MuData | None = None,
        indices: Sequence[int] | None = None,
        *,
        depth: float = 2.0,
        guidance: float = 1.0,
        unseen_to_null: bool = False,
        batch_size: int | None = None,
        silent: bool = False,
    ) -> np.ndarray:
        """Expected counts of the same cells, had they been sequenced ``depth`` times as deep.

        The cell is read as the thinned state of a deeper one; one pass at that level gives the counts to come, which
        are added to the ones at hand. Missing entries are predicted like any other. The model expects the depth of its
        training cells and pulls others towards it, so totals grow by less than ``depth``.

        Parameters
        ----------
        adata
            Data; default: the data of the model.
        indices
            Cells, in the order in which they are to come back.
        depth
            Depth in units of the cell's own; above 1.
        guidance
            Strength of the covariates.
        unseen_to_null
            Treat cells with unseen categories as having no covariates instead of raising an error.
        batch_size
            Cells at a time.
        silent
            Show no progress bar.

        Returns
        -------
        Expected counts of the model's genes, ``(cells, genes)``.

        Examples
        --------
        >>> bool((model.denoise(depth=3, silent=True) >= adata.X.toarray()).all())
        True
        """
        self._require_trained()
        if depth <= 1:
            raise ValueError(f"`depth` must be above 1, not {depth}.")
        source = self._source(adata, unseen_to_null)
        rows, order = unique_rows(indices, self._counts_of(adata))
        time = self.module.schedule.time_of(torch.tensor(1 / depth))
        blocks = []
        with torch.inference_mode():
            for _, block in self._blocks(rows, batch_size, silent, "Denoising"):
                cells = self.module.read(source.read(block, OBSERVED_KEY)[1])
                x0, absent = cells["x0"], cells["absent"]
                status = torch.full_like(x0, NOISED).masked_fill(absent, ABSENT)
                t = torch.full((len(x0),), float(time), device=x0.device)
                denoise = guide(self.module.denoise_with(cells["categories"], cells["continuous"]), guidance)
                remaining = denoise(x0, status, t).mean
                # Of an absent entry nothing was seen: all of its counts are still to come.
                blocks.append((x0 + torch.where(absent, remaining * depth / (depth - 1), remaining)).cpu().numpy())
        result = np.concatenate(blocks)
        return result if order is None else result[order]

    def get_normalized_expression(
        self,
        adata: AnnData | MuData | None = None,
        indices: Sequence[int] | None = None,
        *,
        library_size: float = 1e4,
        gene_list: Sequence[str] | None = None,
        n_folds: int = 10,
        guidance: float = 1.0,
        unseen_to_null: bool = False,
        batch_size: int | None = None,
        return_numpy: bool = False,
        silent: bool = False,
    ) -> pd.DataFrame | np.ndarray:
        """Expected expression of every gene given the other genes of the cell, scaled to a common depth.

        Parameters
        ----------
        adata
            Data; default: the data of the model.
        indices
            Cells, in the order in which they are to come back.
        library_size
            Sum of each cell over the model's genes.
        gene_list
            Genes to return; default: all of the model's.
        n_folds
            Each gene is predicted from the genes of the other folds.
        guidance
            Strength of the covariates.
        unseen_to_null
            Treat cells with unseen categories as having no covariates instead of raising an error.
        batch_size
            Cells at a time.
        return_numpy
            Return an array instead of a DataFrame.
        silent
            Show no progress bar.

        Returns
        -------
        Cells x genes.

        Examples
        --------
        >>> expression = model.get_normalized_expression(library_size=100, silent=True)
        >>> expression.sum(axis=1).round(2).unique().tolist()
        [100.0]
        """
        self._require_trained()
        require_positive(n_folds=n_folds)
        sampler = Sampler(self.module, n_steps=1, guidance=guidance, final="mean", known=self._known_default)
        data = self._counts_of(adata)
        source = self._source(adata, unseen_to_null)
        rows, order = unique_rows(indices, data)
        blocks = []
        for _, _, draws in self._fill(source, rows, _everything, n_folds, sampler, 1, batch_size, 0, silent):
            expected = draws[0].reshape(-1, len(self.gene_names)).astype(np.float64)
            blocks.append(expected * (library_size / expected.sum(1, keepdims=True)))
        result = np.concatenate(blocks)
        result = result if order is None else result[order]
        names = data.obs_names if indices is None else data.obs_names[np.asarray(indices)]
        frame = pd.DataFrame(result, index=names, columns=self.gene_names)
        frame = frame if gene_list is None else frame[list(gene_list)]
        return frame.to_numpy() if return_numpy else frame

    def posterior_predictive_sample(
        self,
        adata: AnnData | MuData | None = None,
        indices: Sequence[int] | None = None,
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
            ``n_steps``, ``known``, ``guidance``, ``attrition``, ``rounding``, ``final``, ``jump_length`` and
            ``n_resamples`` of :meth:`impute`.

        Returns
        -------
        Counts of the model's genes, ``(n_samples, cells, genes)``.

        Examples
        --------
        >>> model.posterior_predictive_sample(n_samples=2, n_folds=2, silent=True).shape == (2, *adata.shape)
        True
        """
        self._require_trained()
        require_positive(n_samples=n_samples, n_folds=n_folds)
        sampler = Sampler(self.module, **{"known": self._known_default, **sampling_kwargs})
        source = self._source(adata, unseen_to_null)
        rows, order = unique_rows(indices, self._counts_of(adata))
        dtype = count_dtype_of(source.counts.dtype) if sampler.final == "sample" else np.float32
        blocks = [
            draws.reshape(n_samples, -1, len(self.gene_names)).astype(dtype)
            for _, _, draws in self._fill(
                source, rows, _everything, n_folds, sampler, n_samples, batch_size, choose_seed(seed), silent
            )
        ]
        result = np.concatenate(blocks, axis=1)
        return result if order is None else result[:, order]

    def log_likelihood(
        self,
        adata: AnnData | MuData | None = None,
        indices: Sequence[int] | None = None,
        *,
        n_times: int = 64,
        unseen_to_null: bool = False,
        batch_size: int | None = None,
        seed: int | None = None,
        silent: bool = False,
    ) -> np.ndarray:
        """Lower bound of the log-probability of each cell's observed counts, in nats (Monte Carlo).

        Parameters
        ----------
        adata
            Data; default: the data of the model.
        indices
            Cells, in the order in which they are to come back.
        n_times
            Time points, one network pass each.
        unseen_to_null
            Treat cells with unseen categories as having no covariates instead of raising an error.
        batch_size
            Cells at a time.
        seed
            Seed.
        silent
            Show no progress bar.

        Returns
        -------
        One number for each cell.

        Examples
        --------
        >>> bool((model.log_likelihood(n_times=8, silent=True) < 0).all())
        True
        """
        self._require_trained()
        require_positive(n_times=n_times)
        seed = choose_seed(seed)
        source = self._source(adata, unseen_to_null)
        rows, order = unique_rows(indices, self._counts_of(adata))
        values = []
        with torch.inference_mode():
            for number, block in self._blocks(rows, batch_size, silent, "Likelihood"):
                cells = self.module.read(source.read(block, OBSERVED_KEY)[1])
                values.append(
                    log_likelihood(
                        guide(self.module.denoise_with(cells["categories"], cells["continuous"]), 1.0),
                        self.module.schedule,
                        cells["x0"],
                        torch.full_like(cells["x0"], NOISED).masked_fill(cells["absent"], ABSENT),
                        n_times=n_times,
                        generator=make_generator(self.module.device, seed, number),
                    )
                    .cpu()
                    .numpy()
                )
        result = np.concatenate(values)
        return result if order is None else result[order]


def _everything(rows: np.ndarray, counts: np.ndarray, absent: np.ndarray) -> np.ndarray:
    return np.ones(absent.shape, dtype=bool)
