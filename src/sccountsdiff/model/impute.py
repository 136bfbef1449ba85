"""Filling in counts."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from importlib.metadata import version

import numpy as np
import scipy.sparse as sp
from anndata import AnnData
from anndata.abc import CSCDataset, CSRDataset
from mudata import MuData

from sccountsdiff.checks import whole_number
from sccountsdiff.compat import setup_args
from sccountsdiff.data.counts import get_matrix
from sccountsdiff.data.rows import Indices, unique_rows
from sccountsdiff.data.source import CellSource
from sccountsdiff.model import results
from sccountsdiff.model.base import CountsDiffBase
from sccountsdiff.model.engine import ChooseSites, OnMove, choose_batch_size, choose_seed, fill
from sccountsdiff.model.settings import read_settings, takes_sampling_settings
from sccountsdiff.model.sites import Sites, missing_entries, named_sites, zeros

logger = logging.getLogger("sccountsdiff")


class ImputeMixin(CountsDiffBase):
    """Imputation."""

    @takes_sampling_settings("n_samples")
    def impute(
        self,
        adata: AnnData | MuData | None = None,
        indices: Indices | None = None,
        *,
        sites: Sites | None = None,
        n_samples: int = 5,
        n_folds: int = 10,
        return_mean: bool = True,
        quantiles: Sequence[float] | float | None = None,
        key_added: str | None = "imputed",
        unseen_to_null: bool = False,
        batch_size: int | None = None,
        seed: int | None = None,
        silent: bool = False,
        on_move: OnMove | None = None,
        **sampling,
    ) -> np.ndarray | sp.csr_matrix:
        """Fill in counts by the reverse process with attrition, averaged over draws.

        A model trained by default is shown the observed counts as they are (``known="clean"``) in every step; one made with
        ``observed_training=False`` is shown them thinned to the level of the others (``known="noised"``), which is the
        RePaint of the paper. Entries that are not filled in come back bit-identical.

        Parameters
        ----------
        adata
            Data to impute; default: the data of the model. Genes are matched by name and may stand in any order.
        indices
            Cells to impute, in the order in which they are to come back: positions, names, a slice, or a boolean for
            each cell. Then nothing is written to ``adata``.
        sites
            Entries to fill in (True): a boolean matrix of the shape of ``adata`` or the name of a layer. Default: the
            entries known to be missing (NaN, ``mask_layer``, ``zeros="missing"``); if there are none, all zeros, in
            ``n_folds`` folds, so that each zero is predicted from all other entries, the other zeros included.
        n_samples
            Draws.
        **sampling
            Settings of sampling.
        n_folds
            Folds for imputing all zeros.
        return_mean
            Return the mean over draws; otherwise all draws, ``(n_samples, cells, genes)``. Those of a single-pass
            mean are all the same.
        quantiles
            Write these quantiles of the draws to ``layers[f"{key_added}_q{quantile}"]``. There is no interpolation:
            each is one of the draws, and so a count.
        key_added
            Name of the layer that is written; ``None`` writes nothing. Layers that an earlier call has written under
            this name go, but the counts, their mask and ``sites`` may not be overwritten.
        unseen_to_null
            Treat cells with unseen categories as having no covariates instead of raising an error.
        batch_size
            Cells at a time; default: ``scvi.settings.batch_size``. Draws depend on it: same ``seed``, ``batch_size``
            and cells, same integers.
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
        several), the quantile layers, and ``uns["sccountsdiff"][key_added]`` (settings, seed, version, names of these
        layers as ``"layers"``, that of the counts as ``"layer"`` unless it is ``X``, and that of their mask as
        ``"mask_layer"`` if there is one), all at the end. With ``indices`` nothing is written.

        Examples
        --------
        >>> model.impute(n_samples=2, seed=0, silent=True) is adata.layers["imputed"]
        True
        """
        self._require_trained()
        n_asked, n_folds = whole_number("n_samples", n_samples), whole_number("n_folds", n_folds)
        settings = read_settings(ImputeMixin.impute, sampling).resolve(self.module)
        n_samples = 1 if settings.is_deterministic else n_asked
        key = key_added if indices is None else None  # of the layers that are written, if any are
        quantiles = _check_quantiles(quantiles, n_samples, settings.is_deterministic, is_written=key is not None)
        data = self._counts_adata(adata)
        args = setup_args(self.registry_)
        count_dtype = results.count_dtype_of(get_matrix(data, args["layer"], None).dtype)
        mean_dtype = np.result_type(count_dtype, np.float32)
        draw_dtype = count_dtype if settings.final == "sample" else mean_dtype
        layers = results.layer_summaries(n_samples, quantiles, draw_dtype, mean_dtype)
        in_use = {"the counts": args["layer"], "their mask": args["mask_layer"]}
        in_use |= {"`sites`": sites} if isinstance(sites, str) else {}
        if key is not None:
            results.check_key(key, list(layers), in_use)
            results.check_can_write(data, key, list(layers))
        else:
            layers = {"": layers[""]} if return_mean else {}
        rows, order = unique_rows(indices, data)
        source = self._source(adata, unseen_to_null, rows)
        if sites is None:
            choose_sites, n_folds = self._default_sites(adata, source, rows, n_folds)
        else:
            choose_sites, n_folds = named_sites(sites, data, source), 1
        batch_size, seed = choose_batch_size(batch_size), choose_seed(seed)

        is_sparse = sp.issparse(source.counts) or isinstance(source.counts, CSRDataset | CSCDataset)
        shape = (len(rows), source.counts.shape[1])
        collectors = {suffix: results.RowCollector(shape, dtype, is_sparse) for suffix, (dtype, _) in layers.items()}
        all_draws = None if return_mean else np.empty((n_asked, *shape), draw_dtype)
        n_done = 0
        for counts, filled, draws in fill(
            self.module,
            source,
            rows,
            choose_sites,
            settings,
            n_folds=n_folds,
            n_samples=n_samples,
            batch_size=batch_size,
            seed=seed,
            silent=silent,
            on_move=on_move,
        ):
            cells, genes = np.nonzero(filled)
            genes = source.columns[genes]
            for suffix, (dtype, summarise) in layers.items():
                around = np.zeros_like(counts) if suffix == "_sd" else counts
                collectors[suffix].add(results.with_values(around, (cells, genes), summarise(draws), dtype))
            if all_draws is not None:
                block = all_draws[:, n_done : n_done + len(counts)]
                block[:] = counts
                block[:, cells, genes] = results.as_dtype(draws, draw_dtype)
            n_done += len(counts)

        matrices = {suffix: collector.finish(order) for suffix, collector in collectors.items()}
        if key is not None:
            note = settings.describe() | {"n_samples": n_samples, "n_folds": n_folds, "seed": seed}
            note |= {"batch_size": batch_size, "version": version("sccountsdiff")}
            note |= {name: args[name] for name in ("layer", "mask_layer") if args[name] is not None}
            named = {key + suffix: matrix for suffix, matrix in matrices.items()}
            results.write_layers(data, key, named, note, keep=set(in_use.values()))
        if all_draws is not None:
            return all_draws if order is None else all_draws[:, order]
        return matrices[""]

    def _default_sites(
        self, adata: AnnData | MuData | None, source: CellSource, rows: np.ndarray, n_folds: int
    ) -> tuple[ChooseSites, int]:
        """What is filled in unless the user says it: what is missing or, if no cell misses anything, the zeros."""
        if self.module.expressed is not None:
            has_missing = True  # zeros of expressed genes are
        elif self._is_own(adata) and (summary := self._summary(source.matrix)) is not None:
            has_missing = summary.has_missing
        else:
            # What becomes of a cell must not depend on which others are asked for, so all cells count.
            has_missing = source.any_missing(rows) or source.any_missing(np.delete(np.arange(source.n_cells), rows))
        if has_missing:
            return missing_entries, 1
        logger.info("No count is marked as missing: imputing all zeros, in %d folds.", n_folds)
        return zeros, n_folds


def _check_quantiles(
    quantiles: Sequence[float] | float | None, n_samples: int, is_deterministic: bool, is_written: bool
) -> list[float]:
    if quantiles is None:
        return []
    try:
        quantiles = [float(q) for q in np.ravel(quantiles)]
    except (TypeError, ValueError):
        raise ValueError(f"`quantiles` must be numbers within [0, 1], not {quantiles!r}.") from None
    if quantiles and is_deterministic:
        raise ValueError(
            "`quantiles` need draws, but `n_steps=1, final='mean'` and `final='log_mean'` are expectations, the same each "
            "time: use `final='sample'`."
        )
    if quantiles and (n_samples == 1 or not all(0 <= q <= 1 for q in quantiles)):
        raise ValueError("`quantiles` must be within [0, 1] and need `n_samples` above 1.")
    if quantiles and not is_written:
        raise ValueError(
            "`quantiles` are written to layers, but nothing is written with `key_added=None` or `indices`: leave them "
            "out, and take them from the draws of `return_mean=False`."
        )
    return list({f"{q:g}": q for q in quantiles}.values())  # of two with the same name, one
