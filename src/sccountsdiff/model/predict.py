"""What the model predicts of each entry from the rest of the cell: its law, its expectation, and how likely cells are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from mudata import MuData

from sccountsdiff.checks import check_number, whole_number
from sccountsdiff.data.rows import Indices, unique_rows
from sccountsdiff.diffusion import MISSING, NOISED, guide, log_likelihood
from sccountsdiff.model import engine
from sccountsdiff.model.base import CountsDiffBase
from sccountsdiff.model.results import as_dtype, count_dtype_of
from sccountsdiff.model.settings import read_settings, takes_sampling_settings
from sccountsdiff.model.transform import read_transforms

if TYPE_CHECKING:
    from sparse import GCXS


class PredictMixin(CountsDiffBase):
    """Predictive draws, expected expression and likelihood."""

    @takes_sampling_settings("n_folds")
    def posterior_predictive_sample(
        self,
        adata: AnnData | MuData | None = None,
        indices: Indices | None = None,
        *,
        n_samples: int = 1,
        gene_list: Sequence[str] | None = None,
        n_folds: int = 10,
        batch_size: int | None = None,
        seed: int | None = None,
        silent: bool = False,
        layer: str | None = None,
        unseen_to_null: bool = False,
        on_move: engine.OnMove | None = None,
        **sampling,
    ) -> GCXS:
        """Draw every entry anew from the rest of its cell, fold by fold.

        Comparing such draws with the data shows whether the model's uncertainty can be trusted: they have the form that
        ``scvi.criticism.PosteriorPredictiveCheck`` takes.

        Parameters
        ----------
        adata
            Data; default: the data of the model.
        indices
            Cells, in the order in which they are to come back.
        n_samples
            Draws.
        gene_list
            Genes to return; default: all of the model's.
        n_folds
            Each gene is drawn given the genes of the other folds.
        **sampling
            Settings of sampling.
        batch_size
            Cells at a time.
        seed
            Seed.
        silent
            Show no progress bar.
        layer
            Layer with the counts, ``"X"`` for ``adata.X``; default: where the model's own are.
        unseen_to_null
            Treat cells with unseen or unknown covariates, or without such a column, as having none instead of raising an
            error.
        on_move
            As in :meth:`impute`.

        Returns
        -------
        Counts of the model's genes, a sparse array ``(cells, genes)``, or ``(cells, genes, n_samples)`` for several draws;
        ``.todense()`` makes it a NumPy array.

        Examples
        --------
        >>> model.posterior_predictive_sample(n_samples=2, n_folds=2, silent=True).shape == (*adata.shape, 2)
        True
        """
        import sparse  # imports numba, which takes a while

        self._require_trained()
        n_samples, n_folds = whole_number("n_samples", n_samples), whole_number("n_folds", n_folds)
        settings = read_settings(PredictMixin.posterior_predictive_sample, sampling).resolve(self.module)
        genes = slice(None) if gene_list is None else self._gene_positions(gene_list, "gene_list")
        rows, order = unique_rows(indices, self._counts_adata(adata, layer))
        source = self._source(adata, unseen_to_null, rows, layer)
        dtype = count_dtype_of(source.counts.dtype) if settings.final == "sample" else np.dtype(np.float32)
        filled = engine.fill(
            self.module,
            source,
            rows,
            engine.every_entry,
            settings,
            n_folds=n_folds,
            n_samples=n_samples,
            batch_size=batch_size,
            seed=engine.choose_seed(seed),
            silent=silent,
            description="Predictive draws",
            on_move=on_move,
        )
        blocks = []
        for block in filled:
            draws = as_dtype(block.values, dtype).reshape(n_samples, -1, self.module.n_genes)[..., genes]
            by_cell = draws[0] if n_samples == 1 else np.moveaxis(draws, 0, -1)
            blocks.append(sparse.GCXS.from_numpy(by_cell, compressed_axes=(0,)))  # by rows, like CSR
        result = sparse.concatenate(blocks)
        return result if order is None else result[order]

    def get_normalized_expression(
        self,
        adata: AnnData | MuData | None = None,
        indices: Indices | None = None,
        *,
        library_size: float | Literal["latent"] = 1e4,
        gene_list: Sequence[str] | None = None,
        n_folds: int = 10,
        guidance: float = 1.0,
        layer: str | None = None,
        transform_covariates: Mapping[str, object] | None = None,
        transform_batch: object = None,
        unseen_to_null: bool = False,
        batch_size: int | None = None,
        return_numpy: bool = False,
        silent: bool = False,
    ) -> pd.DataFrame | np.ndarray:
        """Expected expression of every gene given the other genes of the cell, scaled to a common depth.

        One pass for each fold. Models trained with ``observed_training=False`` cannot be shown the other genes as they
        are: theirs is the mean of 5 chains of 15 steps, which is slower and less exact.

        Parameters
        ----------
        adata
            Data; default: the data of the model.
        indices
            Cells, in the order in which they are to come back.
        library_size
            Sum of each cell over the model's genes, of several modalities (``gene_groups``) over those of each; above 0.
            ``"latent"``: expected counts at the cell's own depth, which the model estimates from the other folds.
        gene_list
            Genes to return; default: all of the model's.
        n_folds
            Each gene is predicted from the genes of the other folds.
        guidance
            Strength of the covariates.
        layer
            Layer with the counts, ``"X"`` for ``adata.X``; default: where the model's own are.
        transform_covariates
            Covariates to replace and their new values, such as ``{"condition": "stimulated"}``: the expression if the cell
            had these. The genes at hand, which still tell of the old values, are first carried over to what would be
            expected of them. A list of values: the mean over them. A cell that has the value already does not change.
        transform_batch
            The same for the covariate that the data was set up with as ``batch_key``, as in scvi-tools. Batches may still be
            told apart: the user guide has figures.
        unseen_to_null
            Treat cells with unseen or unknown covariates, or without such a column, as having none instead of raising an
            error.
        batch_size
            Cells at a time.
        return_numpy
            Return an array instead of a DataFrame.
        silent
            Show no progress bar.

        Returns
        -------
        Cells x genes, in single precision.

        Examples
        --------
        >>> expression = model.get_normalized_expression(library_size=100, silent=True)
        >>> expression.sum(axis=1).round(2).unique().tolist()
        [100.0]
        """
        self._require_trained()
        n_folds = whole_number("n_folds", n_folds)
        if library_size != "latent":
            check_number("library_size", library_size, above=0)
        settings, n_chains = engine.expectation_settings(self.module, guidance)
        transforms = read_transforms(self, transform_covariates, transform_batch)
        genes = slice(None) if gene_list is None else self._gene_positions(gene_list, "gene_list")
        data = self._counts_adata(adata, layer)
        rows, order = unique_rows(indices, data)
        source = self._source(adata, unseen_to_null, rows, layer)
        columns, of_groups = self.gene_names[genes], self.module.group_members
        groups = [slice(None)] if of_groups is None else list(of_groups.cpu().numpy())
        expression = np.zeros((len(rows), len(columns)), np.float32)
        for transform in transforms:
            n_done = 0
            for block in engine.fill(
                self.module,
                source,
                rows,
                engine.every_entry,
                settings,
                n_folds=n_folds,
                n_samples=n_chains,
                batch_size=batch_size,
                seed=engine.EXPECTATION_SEED,
                silent=silent,
                description="Expectation",
                transforms=[transform],
            ):
                expected = block.values[0] if n_chains == 1 else block.values.mean(0)
                expected = expected.reshape(-1, self.module.n_genes)
                for members in groups if library_size != "latent" else []:
                    total = expected[:, members].sum(1, keepdims=True, dtype=np.float64)
                    expected[:, members] *= (library_size / total).astype(np.float32)
                expression[n_done : n_done + len(expected)] += expected[:, genes]
                n_done += len(expected)
        if len(transforms) > 1:
            expression /= len(transforms)
        expression = expression if order is None else expression[order]
        if return_numpy:
            return expression
        names = data.obs_names[rows if order is None else rows[order]]
        return pd.DataFrame(expression, index=names, columns=columns, copy=False)

    def log_likelihood(
        self,
        adata: AnnData | MuData | None = None,
        indices: Indices | None = None,
        *,
        n_times: int = 64,
        layer: str | None = None,
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
        layer
            Layer with the counts, ``"X"`` for ``adata.X``; default: where the model's own are.
        unseen_to_null
            Treat cells with unseen or unknown covariates, or without such a column, as having none instead of raising an
            error.
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
        n_times = whole_number("n_times", n_times)
        seed = engine.choose_seed(seed)
        rows, order = unique_rows(indices, self._counts_adata(adata, layer))
        source = self._source(adata, unseen_to_null, rows, layer)
        values = []
        with torch.inference_mode():
            for number, block in engine.cell_blocks(self.module, rows, batch_size, silent, "Likelihood"):
                cells = self.module.read(source.read(block)[1])
                x0 = cells["x0"]
                bound = log_likelihood(
                    guide(self.module.denoise_with(cells["categories"], cells["continuous"]), 1.0),
                    self.module.schedule,
                    x0,
                    torch.full_like(x0, NOISED).masked_fill(cells["missing"], MISSING),
                    n_times=n_times,
                    generator=engine.make_generator(self.module.device, seed, number),
                )
                values.append(bound.cpu().numpy())
        result = np.concatenate(values)
        return result if order is None else result[order]
