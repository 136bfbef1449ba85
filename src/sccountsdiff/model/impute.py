"""Filling in counts: which entries, and how the result is put together."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from importlib.metadata import version

import numpy as np
import pandas as pd
import scipy.sparse as sp
from anndata import AnnData
from anndata.abc import CSCDataset, CSRDataset
from mudata import MuData
from torch import Tensor

from sccountsdiff.data.loading import CellSource
from sccountsdiff.data.reading import as_matrix, iter_row_chunks, read_rows
from sccountsdiff.data.validation import check_mask
from sccountsdiff.diffusion import Move
from sccountsdiff.model.canvas import Canvas
from sccountsdiff.model.fill import FillMixin, count_dtype_of, unique_rows
from sccountsdiff.model.sampler import Sampler, choose_batch_size, choose_seed, require_positive

logger = logging.getLogger("sccountsdiff")


class ImputeMixin(FillMixin):
    """Imputation."""

    def impute(
        self,
        adata: AnnData | MuData | None = None,
        indices: Sequence[int] | None = None,
        *,
        sites: np.ndarray | sp.spmatrix | pd.DataFrame | str | None = None,
        n_samples: int = 5,
        n_steps: int = 15,
        known: str = "clean",
        guidance: float = 1.0,
        attrition: float = 0.005,
        rounding: str | None = None,
        final: str = "sample",
        jump_length: int = 1,
        n_resamples: int = 1,
        n_folds: int = 10,
        return_mean: bool = True,
        quantiles: Sequence[float] | None = None,
        key_added: str | None = "imputed",
        unseen_to_null: bool = False,
        batch_size: int | None = None,
        seed: int | None = None,
        silent: bool = False,
        on_move: Callable[[Move, Tensor], None] | None = None,
    ) -> np.ndarray | sp.csr_matrix:
        """Fill in counts by RePaint with attrition, averaged over draws.

        Entries that are not filled in come back bit-identical.

        Parameters
        ----------
        adata
            Data to impute; default: the data of the model. Genes are matched by name and may stand in any order.
        indices
            Cells to impute, in the order in which they are to come back. Then nothing is written to ``adata``.
        sites
            Entries to fill in (True): a boolean matrix of the shape of ``adata`` or the name of a layer. Default: the
            entries known to be missing (NaN, ``mask_layer``, ``zeros="missing"``); if there are none, all zeros, in
            ``n_folds`` folds, so that each zero is predicted from all other entries, the other zeros included.
        n_samples
            Draws.
        n_steps
            Reverse steps of each draw. ``n_steps=1, final="mean"`` is the conditional mean in a single pass.
        known
            Observed counts are shown to the network as they are (``"clean"``), or thinned to the level of the others
            (``"noised"``, the RePaint of the paper).
        guidance
            Strength of the covariates: 1 is the conditional model, 0 ignores them, above 1 exaggerates them.
        attrition
            A number: eta of the ``rescale`` schedule. Or an :class:`~sccountsdiff.diffusion.Attrition`, or a tensor
            with a rate for each step.
        rounding
            ``"random"``, ``"nearest"``, ``"poisson"`` or ``"nb"``. Default: ``"nb"`` with that head, else ``"random"``.
        final
            ``"mean"`` replaces the last draw of each chain by its expectation.
        jump_length, n_resamples
            RePaint's resampling: every stretch of ``jump_length`` steps is walked ``n_resamples`` times.
        n_folds
            Folds for imputing all zeros.
        return_mean
            Return the mean over draws; otherwise all draws, ``(n_samples, cells, genes)``.
        quantiles
            Write these quantiles of the draws to ``layers[f"{key_added}_q{quantile}"]``.
        key_added
            Name of the layer that is written; ``None`` writes nothing.
        unseen_to_null
            Treat cells with unseen categories as having no covariates instead of raising an error.
        batch_size
            Cells at a time. Same ``seed`` and ``batch_size``, same integers.
        seed
            Seed; default: drawn from torch's global generator, and noted in ``adata.uns``.
        silent
            Show no progress bar.
        on_move
            Called with every :class:`~sccountsdiff.diffusion.Move` and the state after it, ``(cells, genes)`` of the
            model, in which only entries that are filled in are non-zero: block by block, fold by fold, draw by draw.

        Returns
        -------
        The mean over draws, sparse if the counts are; or all draws.

        Notes
        -----
        Writes ``layers[key_added]``, ``layers[key_added + "_sd"]`` (standard deviation over draws, if there are
        several), the quantile layers, and ``uns["sccountsdiff"][key_added]`` (settings, seed, version), all at the end.

        Examples
        --------
        >>> model.impute(n_samples=2, seed=0, silent=True) is adata.layers["imputed"]
        True
        """
        self._require_trained()
        require_positive(n_samples=n_samples, n_folds=n_folds)
        sampler = Sampler(
            self.module, n_steps, known, guidance, attrition, rounding, final, jump_length, n_resamples, on_move
        )  # fmt: skip
        if sampler.is_deterministic:
            n_samples = 1
        quantiles = list(quantiles or [])
        if quantiles and (n_samples == 1 or not all(0 <= q <= 1 for q in quantiles)):
            raise ValueError("`quantiles` must be within [0, 1] and need `n_samples` above 1.")
        data = self._counts_of(adata)
        source = self._source(adata, unseen_to_null)
        rows, order = unique_rows(indices, data)
        choose, n_folds = _which_sites(sites, data, source, self.module.expressed is not None, n_folds)
        seed = choose_seed(seed)

        is_sparse = sp.issparse(source.counts) or isinstance(source.counts, CSRDataset | CSCDataset)
        count_dtype = count_dtype_of(source.counts.dtype)
        mean_dtype = np.result_type(count_dtype, np.float32)
        shape = (len(rows), source.counts.shape[1])
        is_draw = n_samples == 1 and final == "sample"
        canvases = {"": Canvas(shape, count_dtype if is_draw else mean_dtype, is_sparse)}
        if n_samples > 1:
            canvases["_sd"] = Canvas(shape, np.float32, is_sparse)
        canvases |= {f"_q{q:g}": Canvas(shape, mean_dtype, is_sparse) for q in quantiles}
        draw_dtype = count_dtype if final == "sample" else mean_dtype
        all_draws = None if return_mean else np.empty((n_samples, *shape), draw_dtype)

        n_done = 0
        for counts, filled, draws in self._fill(
            source, rows, choose, n_folds, sampler, n_samples, batch_size, seed, silent
        ):
            values = {"": draws[0] if n_samples == 1 else draws.mean(0)}
            values |= {f"_q{q:g}": np.quantile(draws, q, axis=0) for q in quantiles}
            for suffix, filled_in in values.items():
                canvases[suffix].add(_put(counts, source, filled, filled_in, canvases[suffix].dtype))
            if n_samples > 1:
                nothing = np.zeros(counts.shape, np.float32)
                canvases["_sd"].add(_put(nothing, source, filled, draws.std(0, ddof=1), np.float32))
            if all_draws is not None:
                for k in range(n_samples):
                    all_draws[k, n_done : n_done + len(counts)] = _put(counts, source, filled, draws[k], draw_dtype)
            n_done += len(counts)

        results = {suffix: canvas.finish(order) for suffix, canvas in canvases.items()}
        if key_added is not None and indices is None:
            for suffix, matrix in results.items():
                data.layers[key_added + suffix] = matrix
            settings_used = sampler.describe() | {"n_samples": n_samples, "n_folds": n_folds, "seed": seed}
            settings_used |= {"batch_size": choose_batch_size(batch_size), "version": version("sccountsdiff")}
            data.uns["sccountsdiff"] = {**data.uns.get("sccountsdiff", {}), key_added: settings_used}
        if all_draws is not None:
            return all_draws if order is None else all_draws[:, order]
        return results[""]


def _which_sites(sites, data: AnnData, source: CellSource, zeros_missing: bool, n_folds: int):
    """The function that says which entries of a block to fill in, and in how many folds."""
    if sites is not None:
        if isinstance(sites, str):
            if sites not in data.layers:
                raise KeyError(f"sites={sites!r} is not in adata.layers, which has {', '.join(data.layers) or 'none'}.")
            sites = data.layers[sites]
        if isinstance(sites, pd.DataFrame):
            if not (sites.index.equals(data.obs_names) and sites.columns.equals(data.var_names)):
                raise ValueError(
                    "`sites` does not have the names of cells and genes of adata, in their order: "
                    "pass sites.loc[adata.obs_names, adata.var_names]."
                )
            sites = sites.to_numpy()
        sites = as_matrix(sites, "sites")
        check_mask(sites, data.shape, name="sites")
        strangers = np.setdiff1d(np.arange(data.n_vars), source.columns)
        if len(strangers):
            asked = sum(np.asarray(block[:, strangers].sum(0)).ravel() for _, block in iter_row_chunks(sites))
            if asked.any():
                gene = data.var_names[strangers[asked.argmax()]]
                raise ValueError(f"`sites` asks for gene {gene!r}, which the model was not trained on.")
        return lambda rows, counts, absent: source.select(read_rows(sites, rows)).astype(bool), 1
    if zeros_missing or _any_absent(source):
        return lambda rows, counts, absent: absent, 1
    logger.info("No count is marked as missing: imputing all zeros, in %d folds.", n_folds)
    return lambda rows, counts, absent: counts == 0, n_folds


def _any_absent(source: CellSource) -> bool:
    for _, block in iter_row_chunks(source.counts):
        if block.dtype.kind == "f" and np.isnan(block.data if sp.issparse(block) else block).any():
            return True
    if source.mask is None:
        return False
    n_observed = sum(int((block != 0).sum()) for _, block in iter_row_chunks(source.mask))
    return n_observed < source.mask.shape[0] * source.mask.shape[1]


def _put(
    block: np.ndarray, source: CellSource, filled: np.ndarray, values: np.ndarray, dtype: np.dtype | type
) -> np.ndarray:
    """A copy of the block with the values in the places that are filled in."""
    cells, genes = np.nonzero(filled)
    out = block.astype(dtype)
    out[cells, source.columns[genes]] = values
    return out
