"""Filling in counts."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from anndata import AnnData
from mudata import MuData

from sccountsdiff import __version__
from sccountsdiff.checks import check_number, one_of, whole_number
from sccountsdiff.compat import setup_args
from sccountsdiff.data.reading import DaskMatrix
from sccountsdiff.data.rows import Indices, unique_rows
from sccountsdiff.data.source import CellSource, CellTables
from sccountsdiff.files import available_memory
from sccountsdiff.model import results
from sccountsdiff.model.base import CountsDiffBase
from sccountsdiff.model.engine import ChooseSites, OnMove, choose_batch_size, choose_seed
from sccountsdiff.model.lazy import impute_lazily
from sccountsdiff.model.plan import Plan
from sccountsdiff.model.settings import ResolvedSettings, SamplingSettings, read_settings, takes_sampling_settings
from sccountsdiff.model.sites import Sites, digest_of, missing_entries, named_sites, only, within, zeros
from sccountsdiff.model.streaming import BlockFolder
from sccountsdiff.model.transform import KEEP, Transform, read_transforms

logger = logging.getLogger("sccountsdiff")

N_DRAWS = 5
"""Draws where draws are needed, and it is not said how many."""


class ImputeMixin(CountsDiffBase):
    """Imputation."""

    @takes_sampling_settings("n_samples")
    def impute(
        self,
        adata: AnnData | MuData | None = None,
        indices: Indices | None = None,
        *,
        what: Literal["missing", "zeros"] | None = None,
        sites: Sites | None = None,
        genes: Sequence[str] | None = None,
        n_samples: int | None = None,
        n_folds: int = 10,
        return_mean: bool = True,
        quantiles: Sequence[float] | float | None = None,
        min_value: float = 0.0,
        key_added: str | None = "imputed",
        out: str | Path | None = None,
        layer: str | None = None,
        transform_covariates: Mapping[str, object] | None = None,
        transform_batch: object = None,
        unseen_to_null: bool = False,
        batch_size: int | None = None,
        seed: int | None = None,
        silent: bool = False,
        on_move: OnMove | None = None,
        **sampling,
    ) -> np.ndarray | sp.csr_matrix | Path:
        """Fill in counts: what is expected of them, or draws of the reverse process with attrition.

        By default the average over all draws is taken at once: the first step of the reverse process knows it, and what
        it predicts of each count, in closed form, so that no draws are made and there is no noise of theirs in the
        result. With ``n_samples``, so many draws are made step by step and averaged.

        A model trained by default is shown the observed counts as they are (``known="clean"``) in every step; one made with
        ``observed_training=False`` is shown them thinned to the level of the others (``known="noised"``), which is the
        RePaint of the paper, and its draws are made and averaged as in the paper. Entries that are not filled in come back
        bit-identical.

        Parameters
        ----------
        adata
            Data to impute; default: the data of the model. Genes are matched by name and may stand in any order. Genes
            of the model that are absent have no place in the result: :meth:`prepare_query_anndata` adds them.
        indices
            Cells to impute, in the order in which they are to come back: positions, names, a slice, or a boolean for
            each cell. Then nothing is written to ``adata``.
        what
            ``"missing"``: the entries known to be missing (NaN, ``mask_layer``, ``zeros="missing"``). ``"zeros"``: these
            and all zeros, in ``n_folds`` folds, so that each zero is predicted from the genes of the other folds, zeros
            included. Default: ``"missing"`` if the data that the model was made with had missing entries or a mask, else
            ``"zeros"``; what ``adata`` holds does not matter.
        sites
            Entries to fill in (True), in place of ``what``: a boolean matrix of the shape of ``adata``, dense or sparse,
            or the name of a layer.
        genes
            Fill in only entries of these genes.
        n_samples
            Draws; 0: one pass, and what it predicts in closed form. Default: 0; or 5 if the draws themselves are asked
            for, a setting of their steps is given, or the model was made with ``observed_training=False``.
        **sampling
            Settings of sampling.
        n_folds
            Folds of genes, the same in all cells, for imputing all zeros.
        return_mean
            Return the mean over draws; otherwise all draws, ``(n_samples, cells, genes)``. Layers are written in either case,
            unless ``key_added=None``.
        quantiles
            Write these quantiles to ``layers[f"{key_added}_q{quantile}"]``: of the predicted law or, with
            ``final="sample"``, of the draws. There is no interpolation: each is a count.
        min_value
            Values below this are written as 0, so that a result with all zeros filled in stays sparse.
        key_added
            Name of the layer that is written; ``None`` writes nothing. Layers that an earlier call has written under
            this name go, but the counts, their mask and ``sites`` may not be overwritten.
        out
            Write the layers to this file, ``.h5ad`` or ``.zarr``, with ``obs`` and ``var`` and without the counts, instead
            of to ``adata``: block by block, so that they need not fit in memory. A call that was interrupted goes on where
            it stopped if it is made again. The file is there when it is complete.
        layer
            Layer with the counts, ``"X"`` for ``adata.X``; default: where the model's own are.
        transform_covariates
            Covariates to replace and their new values, such as ``{"condition": "stimulated"}``: entries are filled in as if
            the cell had these. What is observed, which still tells of the old values, is carried over to what would be
            expected of it before it is shown to the network, but comes back as it is. Draws take the values of a list in
            turn (``n_samples`` must be a multiple of their number); expectations are averaged over them.
        transform_batch
            The same for the covariate that the data was set up with as ``batch_key``, as in scvi-tools. Batches may still be
            told apart: the user guide has figures.
        unseen_to_null
            Treat cells with unseen or unknown covariates, or without such a column, as having none instead of raising an
            error.
        batch_size
            Cells at a time; default: ``scvi.settings.batch_size``. Draws depend on it: same ``seed``, ``batch_size``
            and cells, same integers.
        seed
            Seed; default: drawn from torch's global generator, and noted in ``adata.uns``. With ``out`` it is 0, as a call
            that is made again could not go on with other numbers.
        silent
            Show no progress bar.
        on_move
            Called with every :class:`~sccountsdiff.diffusion.Move` and the state after it, ``(cells, genes)`` of the
            model, in which only entries that are filled in are non-zero: block by block, fold by fold, draw by draw.

        Returns
        -------
        The mean, sparse if the counts are, unless all zeros are filled in with expectations; or all draws; or ``out``. Of
        counts in a Dask array, this and the layers are Dask arrays, which are computed when they are needed; not with
        ``indices`` or for draws.

        Notes
        -----
        Writes ``layers[key_added]``, ``layers[key_added + "_sd"]`` (standard deviation of the count, unless there is a
        single draw), the quantile layers, and ``uns["sccountsdiff"][key_added]`` (settings, seed, version, names of these
        layers as ``"layers"``, that of the counts as ``"layer"`` unless it is ``X``, and that of their mask as
        ``"mask_layer"`` if there is one), all at the end. With ``indices`` nothing is written.

        Of a MuData with counts in several modalities, columns of the result (and of ``sites``) are the features of all
        modalities, as in :attr:`gene_names`, and rows all cells. Each modality's own layers and ``uns`` receive its part; if
        there are cells that a modality does not have, the part of all cells goes to ``mdata.obsm`` too, as
        ``"imputed_prot"``, ``"imputed_sd_prot"`` and so on, with columns as in ``var_names`` of the modality.

        Examples
        --------
        >>> model.impute(seed=0, silent=True) is adata.layers["imputed"]
        True
        >>> model.impute(n_samples=2, genes=list(adata.var_names[:3]), key_added="three_genes", silent=True) is not None
        True
        """
        self._require_trained()
        key = key_added if indices is None else None  # of the layers that are written, if any are
        if out is not None and (key is None or not return_mean):
            raise ValueError(
                "`out` holds layers of all cells: leave out `indices` and `return_mean`, and name `key_added`."
            )
        genes = list(genes) if isinstance(genes, Iterable) and not isinstance(genes, str) else genes
        settings, n_samples, quantiles, transforms = self._check_call(
            what=what,
            sites=sites,
            genes=genes,
            n_samples=n_samples,
            n_folds=n_folds,
            return_mean=return_mean,
            quantiles=quantiles,
            min_value=min_value,
            key_added=key,
            transform_covariates=transform_covariates,
            transform_batch=transform_batch,
            batch_size=batch_size,
            **sampling,
        )
        n_chains = 1 if settings.is_deterministic else n_samples
        by_law = settings.final != "sample" and return_mean
        tables = self._cells(adata, layer)
        rows, order = unique_rows(indices, tables.adata)
        source = self._source(adata, unseen_to_null, rows, layer)
        is_lazy = isinstance(source.counts, DaskMatrix) and indices is None and return_mean and out is None
        choose_sites, n_folds, target = self._sites_of(what, sites, genes, source, tables.adata, n_folds)

        mean_dtype = results.mean_dtype_of(self._largest_count(adata, source, rows))
        draw_dtype = results.count_dtype_of(source.counts.dtype)
        draw_dtype = draw_dtype if settings.final == "sample" or by_law else mean_dtype
        layers = results.result_layers(n_chains, quantiles, settings.final, draw_dtype, mean_dtype)
        if n_chains == 1 and not by_law:
            layers.pop("_sd", None)  # of one draw there is none
        args = setup_args(self.registry_) | ({} if layer is None else {"layer": tables.layer})
        in_use = results.layers_read(args, sites)
        if key is None:
            layers = {"": layers[""]} if return_mean else {}
        else:
            results.check_key(key, list(layers), in_use)
            if out is None:
                results.check_result(self.adata if adata is None else adata, tables, key, list(layers))
        plan = Plan(
            source=source,
            rows=rows,
            what=target,
            choose_sites=choose_sites,
            n_folds=n_folds,
            settings=settings,
            transforms=transforms,
            n_chains=n_chains,
            batch_size=choose_batch_size(batch_size),
            seed=choose_seed(0 if seed is None and out is not None else seed),
            silent=silent,
            on_move=on_move,
            layers=layers,
            draw_dtype=draw_dtype,
            by_law=by_law,
            min_value=min_value,
            fills_all=target == "zeros" and genes is None and min_value <= 0,
        )
        note = settings.describe() | {"what": target, "n_samples": 0 if settings.is_deterministic else n_samples}
        note |= {"n_folds": n_folds, "seed": plan.seed, "batch_size": plan.batch_size}
        note |= {"version": __version__}
        note |= {"transform_covariates": [one.name for one in transforms]} if transforms != [KEEP] else {}
        note |= {name: args[name] for name in ("layer", "mask_layer") if args[name] is not None}
        if out is not None and key is not None:
            asked = note | {"quantiles": quantiles, "min_value": min_value, "genes": genes or [], "key": key}
            asked |= {"sites": digest_of(sites, tables.adata)}
            return self._impute_to_file(plan, BlockFolder(out, asked | self._digests(source)), tables, key, note)
        made: Mapping[str, Any]
        if is_lazy:
            made, draws = impute_lazily(self.module, plan), None
        else:
            _warn_of_size(plan.dense_bytes)
            made, draws = self._impute_in_memory(plan, order, n_draws=0 if return_mean else n_samples)
        if key is not None:
            named = {f"{key}{suffix}": matrix for suffix, matrix in made.items()}
            whole = self.adata if adata is None else adata
            results.write_result(whole, tables, key, named, note, keep=in_use.values())
        return made[""] if return_mean else draws

    def _impute_in_memory(
        self, plan: Plan, order: np.ndarray | None, n_draws: int
    ) -> tuple[dict[str, np.ndarray | sp.csr_matrix], np.ndarray | None]:
        """Layers by their suffixes and, if some are wanted, the draws; rows in ``order``."""
        collectors = {
            suffix: results.RowCollector(plan.shape, layer.dtype, plan.is_sparse[suffix])
            for suffix, layer in plan.layers.items()
        }
        draws = np.empty((n_draws, *plan.shape), plan.draw_dtype) if n_draws else None
        n_done = n_filled = 0
        for block in plan.blocks(self.module):
            for suffix, rows in plan.layers_of(block).items():
                collectors[suffix].add(rows)
            if draws is not None:
                draws[:, n_done : n_done + len(block.counts)] = plan.draws_of(block)
            n_done, n_filled = n_done + len(block.counts), n_filled + int(block.sites.sum())
        if n_filled == 0 and plan.what == "missing":
            logger.info("Nothing is missing: adata comes back as it is. `what='zeros'` would fill in its zeros.")
        made = {suffix: collector.finish(order) for suffix, collector in collectors.items()}
        return made, draws if draws is None or order is None else draws[:, order]

    def _impute_to_file(self, plan: Plan, blocks: BlockFolder, tables: CellTables, key: str, note: dict) -> Path:
        """Write the layers of all cells to a file, going on after the blocks that are done."""
        for block in plan.blocks(self.module, blocks.is_done):
            made = {
                f"{key}{suffix}": sp.csr_matrix(rows) if plan.is_sparse[suffix] else rows
                for suffix, rows in plan.layers_of(block).items()
            }
            blocks.save(block.number, made)
        names = [f"{key}{suffix}" for suffix in plan.layers]
        blocks.finish(tables.adata.obs, tables.adata.var, {results.NOTES: {key: note | {"layers": names}}})
        return blocks.path

    def _check_call(
        self,
        *,
        what: str | None = None,
        sites: Sites | None = None,
        genes: Sequence[str] | None = None,
        n_samples: int | None = None,
        n_folds: int = 10,
        return_mean: bool = True,
        quantiles: Sequence[float] | float | None = None,
        min_value: float = 0.0,
        key_added: str | None = "imputed",
        transform_covariates: Mapping[str, object] | None = None,
        transform_batch: object = None,
        batch_size: int | None = None,
        **sampling: Any,
    ) -> tuple[ResolvedSettings, int, list[float], list[Transform]]:
        """Refuse what can be judged without cells; settings of draws, how many there are, quantiles and transforms."""
        one_of("what", what, ("missing", "zeros", None))
        if what is not None and sites is not None:
            raise ValueError("`what` and `sites` both say what to fill in: pass one of them.")
        whole_number("n_folds", n_folds)
        check_number("min_value", min_value)
        choose_batch_size(batch_size)
        if genes is not None:
            self._gene_positions(genes, "genes")
        given = read_settings(ImputeMixin.impute, sampling)
        n_samples = self._number_of_draws(n_samples, given, return_mean)
        if n_samples == 0:
            given = dataclasses.replace(given, n_steps=1, n_resamples=1, jump_length=1, final=given.final or "mean")
        settings = given.resolve(self.module, averaging=return_mean and n_samples > 1)
        n_chains = 1 if settings.is_deterministic else n_samples
        n_taking_turns = n_chains if settings.final == "sample" else None
        transforms = read_transforms(self, transform_covariates, transform_batch, n_taking_turns)
        by_law = settings.final != "sample" and return_mean
        quantiles = _check_quantiles(quantiles, n_chains, by_law, is_written=key_added is not None)
        return settings, n_samples, quantiles, transforms

    def _number_of_draws(self, n_samples: int | None, given: SamplingSettings, return_mean: bool) -> int:
        """How many draws to make; 0: none, as the law of the first step says it all."""
        if n_samples is not None:
            n_samples = whole_number("n_samples", n_samples, least=0)
            if n_samples == 0 and not return_mean:
                raise ValueError("`return_mean=False` returns draws: say with `n_samples` how many.")
            if n_samples == 0 and (changed := _walk_settings(given)):
                raise ValueError(
                    f"`n_samples=0` makes no draws, and `{changed[0]}` is a setting of how they are made: leave it out, or "
                    "ask for draws."
                )
            if n_samples == 0 and not self.module.observed_training:
                raise ValueError(
                    "`n_samples=0` needs a model that can be shown counts as they are; this one was made with "
                    "`observed_training=False`: leave out `n_samples`, or make some draws."
                )
            return n_samples
        in_one_pass = return_mean and self.module.observed_training and not _walk_settings(given)
        return 0 if in_one_pass else N_DRAWS

    def _sites_of(
        self,
        what: str | None,
        sites: Sites | None,
        genes: Sequence[str] | None,
        source: CellSource,
        data: AnnData,
        n_folds: int,
    ) -> tuple[ChooseSites, int, str]:
        """Which entries are filled in, in how many folds, and what they are called."""
        name = "sites" if sites is not None else what or self.fills_in_
        if name == "sites":
            choose, n_folds = named_sites(sites, data, source), 1
        elif name == "zeros":
            choose = zeros
            if what is None:
                logger.info("Imputing all zeros, in %d folds: no count of the model's data is missing.", n_folds)
        else:
            choose, n_folds = missing_entries, 1
        if genes is not None:
            choose = only(self._gene_positions(genes, "genes"), choose)
        return within(source, choose), n_folds, name

    def _largest_count(self, adata: AnnData | MuData | None, source: CellSource, rows: np.ndarray) -> float:
        if self._is_own(adata) and (summary := self._summary(source.matrix)) is not None:
            return float(np.max(summary.largest, initial=0))
        return 0.0 if isinstance(source.counts, DaskMatrix) else source.largest(rows)  # it is not read twice


def _walk_settings(given: SamplingSettings) -> list[str]:
    """Settings of the steps of a draw that are not the default ones; the mean over all draws does not depend on them."""
    defaults = SamplingSettings()
    names = ("n_steps", "spacing", "attrition", "rounding", "jump_length", "n_resamples")
    if given.is_deterministic:
        return []
    changed = [name for name in names if repr(getattr(given, name)) != repr(getattr(defaults, name))]
    changed += ["known"] if given.known == "noised" else []
    return changed + (["final"] if given.final == "sample" else [])


def _warn_of_size(size: int) -> None:
    """Say before the work that its result, which is dense, may not fit in memory."""
    free = available_memory()
    if free is not None and size > 0.8 * free:
        logger.warning(
            "With all zeros filled in the result takes %.1f GB, and %.1f GB of memory are free: write it to a file with "
            "`out`, keep it sparse with `min_value`, or fill in less with `genes` or `sites`.",
            size / 1e9,
            free / 1e9,
        )


def _check_quantiles(
    quantiles: Sequence[float] | float | None, n_samples: int, by_law: bool, is_written: bool
) -> list[float]:
    if quantiles is None:
        return []
    try:
        quantiles = [float(q) for q in np.ravel(quantiles)]
    except (TypeError, ValueError):
        raise ValueError(f"`quantiles` must be numbers within [0, 1], not {quantiles!r}.") from None
    if not all(0 < q < 1 if by_law else 0 <= q <= 1 for q in quantiles):
        raise ValueError("`quantiles` must be within [0, 1], and of a predicted law between 0 and 1.")
    if quantiles and not by_law and n_samples == 1:
        raise ValueError(
            "`quantiles` of draws need `n_samples` above 1, or `n_samples=0` for those of the predicted law."
        )
    if quantiles and not is_written:
        raise ValueError(
            "`quantiles` are written to layers, but nothing is written with `key_added=None` or `indices`: leave them "
            "out, and take them from the draws of `return_mean=False`."
        )
    return list({f"{q:g}": q for q in quantiles}.values())  # of two with the same name, one
