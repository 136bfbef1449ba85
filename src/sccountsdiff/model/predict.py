"""What a model expects of cells: of deeper ones, of every entry given the others, and how likely they are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from mudata import MuData

from sccountsdiff.checks import check_number, whole_number
from sccountsdiff.data.messages import suggestion
from sccountsdiff.diffusion import MISSING, NOISED, OBSERVED, guide, log_likelihood
from sccountsdiff.diffusion.rounding import checked_mean
from sccountsdiff.model.engine import FillMixin, Indices, choose_everything, unique_rows
from sccountsdiff.model.settings import Sampler, choose_seed, make_generator
from sccountsdiff.module import OBSERVED_KEY

N_CHAINS, N_STEPS = 5, 15
"""Chains, and their steps, whose mean is the expectation of models that cannot give it in one pass."""

SEED = 0
"""Of these chains: an expectation has no seed of its own."""


class ExpectMixin(FillMixin):
    """Denoising, expected expression and likelihood."""

    def denoise(
        self,
        adata: AnnData | MuData | None = None,
        indices: Indices | None = None,
        *,
        depth: float = 2.0,
        guidance: float = 1.0,
        unseen_to_null: bool = False,
        batch_size: int | None = None,
        silent: bool = False,
    ) -> np.ndarray:
        """Expected counts of the same cells, had they been sequenced ``depth`` times as deep.

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
        check_number("depth", depth, above=1)
        sampler, n_chains = self._mean_sampler(guidance)
        rows, order = unique_rows(indices, self._counts_adata(adata))
        source = self._source(adata, unseen_to_null, rows)
        time = self.module.schedule.time_of(torch.tensor(1 / depth))
        blocks = []
        with torch.inference_mode():
            for number, block in self._blocks(rows, batch_size, silent, "Denoising"):
                cells = self.module.read(source.read(block, OBSERVED_KEY)[1])
                x0, missing = cells["x0"], cells["missing"]
                covariates = cells["categories"], cells["continuous"]
                if missing.any():
                    # What the network says of missing entries was never trained. So they are predicted as hidden ones,
                    # at the depth of their cell, and the completed cell is what is read as a thinned one: observed and
                    # missing entries then grow alike, whatever depth the model believes in.
                    status = torch.full_like(x0, OBSERVED).masked_fill(missing, NOISED)
                    generators = (make_generator(x0.device, SEED, number, k) for k in range(n_chains))
                    expected = sum(sampler.draw(x0, status, *covariates, g) for g in generators) / n_chains
                    x0 = torch.where(missing, expected, x0)
                t = torch.full((len(x0),), float(time), device=x0.device)
                denoise = guide(self.module.denoise_with(*covariates), guidance)
                deeper = x0 + checked_mean(denoise(x0, torch.full_like(x0, NOISED), t))
                blocks.append(deeper.cpu().numpy())
        result = np.concatenate(blocks)
        return result if order is None else result[order]

    def get_normalized_expression(
        self,
        adata: AnnData | MuData | None = None,
        indices: Indices | None = None,
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

        One pass for each fold. Models trained with ``observed_training=False`` cannot be shown the other genes as they
        are: theirs is the mean of 5 chains of 15 steps, which is slower and less exact.

        Parameters
        ----------
        adata
            Data; default: the data of the model.
        indices
            Cells, in the order in which they are to come back.
        library_size
            Sum of each cell over the model's genes; above 0.
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
        n_folds = whole_number("n_folds", n_folds)
        check_number("library_size", library_size, above=0)
        sampler, n_chains = self._mean_sampler(guidance)
        genes = self._check_genes(gene_list)
        data = self._counts_adata(adata)
        rows, order = unique_rows(indices, data)
        filling = self._fill(
            self._source(adata, unseen_to_null, rows),
            rows,
            choose_everything,
            sampler,
            n_folds=n_folds,
            n_samples=n_chains,
            batch_size=batch_size,
            seed=SEED,
            silent=silent,
            what="Expectation",
        )
        blocks = []
        for _, _, draws in filling:
            expected = draws.mean(0, dtype=np.float64).reshape(-1, len(self.gene_names))
            blocks.append(expected * (library_size / expected.sum(1, keepdims=True)))
        result = np.concatenate(blocks)
        result = result if order is None else result[order]
        names = data.obs_names[rows if order is None else rows[order]]
        frame = pd.DataFrame(result, index=names, columns=self.gene_names)[genes]
        return frame.to_numpy() if return_numpy else frame

    def log_likelihood(
        self,
        adata: AnnData | MuData | None = None,
        indices: Indices | None = None,
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
        n_times = whole_number("n_times", n_times)
        seed = choose_seed(seed)
        rows, order = unique_rows(indices, self._counts_adata(adata))
        source = self._source(adata, unseen_to_null, rows)
        values = []
        with torch.inference_mode():
            for number, block in self._blocks(rows, batch_size, silent, "Likelihood"):
                cells = self.module.read(source.read(block, OBSERVED_KEY)[1])
                values.append(
                    log_likelihood(
                        guide(self.module.denoise_with(cells["categories"], cells["continuous"]), 1.0),
                        self.module.schedule,
                        cells["x0"],
                        torch.full_like(cells["x0"], NOISED).masked_fill(cells["missing"], MISSING),
                        n_times=n_times,
                        generator=make_generator(self.module.device, seed, number),
                    )
                    .cpu()
                    .numpy()
                )
        result = np.concatenate(values)
        return result if order is None else result[order]

    def _mean_sampler(self, guidance: float) -> tuple[Sampler, int]:
        """How to get expectations, and the number of chains whose mean they are."""
        if self.module.observed_training:
            return Sampler(self.module, n_steps=1, final="mean", guidance=guidance), 1
        # In one pass from t = 1 all that is known would be thinned away.
        n_grid = self.module.schedule.n_grid
        n_steps = N_STEPS if n_grid is None else min(N_STEPS, n_grid - 1)
        return Sampler(self.module, n_steps=n_steps, known="noised", final="mean", guidance=guidance), N_CHAINS

    def _check_genes(self, gene_list: Sequence[str] | None) -> list[str]:
        """The genes to return, by default all; an error names one that the model does not have."""
        if gene_list is None:
            return list(self.gene_names)
        if isinstance(gene_list, str):
            raise ValueError(f"`gene_list` must be a list of genes, not one name: pass [{gene_list!r}].")
        genes, known = list(gene_list), set(self.gene_names)
        unknown = next((gene for gene in genes if gene not in known), None)
        if unknown is not None:
            raise KeyError(f"gene_list: the model has no gene {unknown!r}.{suggestion(unknown, self.gene_names)}")
        return genes
