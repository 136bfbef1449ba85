"""Filling in counts: which entries, and how the result is put together."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version

import numpy as np
import pandas as pd
import scipy.sparse as sp
from anndata import AnnData
from anndata.abc import CSCDataset, CSRDataset
from mudata import MuData
from torch import Tensor

from sccountsdiff.checks import whole_number
from sccountsdiff.compat import setup_args
from sccountsdiff.data.counts import get_matrix
from sccountsdiff.data.messages import values_of
from sccountsdiff.data.missing import check_mask
from sccountsdiff.data.reading import as_matrix, by_rows, iter_row_chunks, iter_some_rows, read_rows
from sccountsdiff.data.source import CellSource
from sccountsdiff.diffusion import Attrition, Move
from sccountsdiff.model.engine import FillMixin, Indices, as_dtype, count_dtype_of, unique_rows
from sccountsdiff.model.results import Canvas
from sccountsdiff.model.settings import Sampler, choose_batch_size, choose_seed

logger = logging.getLogger("sccountsdiff")


class ImputeMixin(FillMixin):
    """Imputation."""

    def impute(
        self,
        adata: AnnData | MuData | None = None,
        indices: Indices | None = None,
        *,
        sites: np.ndarray | sp.spmatrix | pd.DataFrame | str | None = None,
        n_samples: int = 5,
        n_steps: int = 15,
        known: str = "clean",
        guidance: float = 1.0,
        attrition: float | Tensor | Attrition = 0.005,
        rounding: str | None = None,
        final: str = "sample",
        jump_length: int = 1,
        n_resamples: int = 1,
        n_folds: int = 10,
        return_mean: bool = True,
        quantiles: Sequence[float] | float | None = None,
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
            Cells to impute, in the order in which they are to come back: positions, names, a slice, or a boolean for
            each cell. Then nothing is written to ``adata``.
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
            (``"noised"``, the RePaint of the paper; it needs several steps, as nothing is left of them at the start).
        guidance
            Strength of the covariates: 1 is the conditional model, 0 ignores them, above 1 exaggerates them.
        attrition
            A number: eta of the ``rescale`` schedule. Or an :class:`~sccountsdiff.diffusion.Attrition`, or a tensor
            with a rate for each step; for each step and gene; or for each step, cell of ``adata`` and gene of the
            model. With resampling, steps count as often as they are walked.
        rounding
            ``"random"``, ``"nearest"``, ``"poisson"`` or ``"nb"``. Default: ``"nb"`` with that head, else ``"random"``.
        final
            ``"mean"`` replaces the last draw of each chain by its expectation.
        jump_length, n_resamples
            RePaint's resampling: every stretch of ``jump_length`` steps is walked ``n_resamples`` times.
        n_folds
            Folds for imputing all zeros.
        return_mean
            Return the mean over draws; otherwise all draws, ``(n_samples, cells, genes)``. Those of a single-pass
            mean are all the same.
        quantiles
            Write these quantiles of the draws to ``layers[f"{key_added}_q{quantile}"]``. Each is one of the draws, the
            least with at least this share of them at or below it: a count.
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
        sampler = Sampler(
            self.module,
            n_steps=n_steps,
            known=known,
            guidance=guidance,
            attrition=attrition,
            rounding=rounding,
            final=final,
            jump_length=jump_length,
            n_resamples=n_resamples,
            on_move=on_move,
        )
        n_samples = 1 if sampler.is_deterministic else n_asked
        is_written = key_added is not None and indices is None
        quantiles = _check_quantiles(quantiles, n_samples, sampler.is_deterministic, is_written)
        data = self._counts_adata(adata)
        args = setup_args(self.registry_)
        count_dtype = count_dtype_of(get_matrix(data, args["layer"], None).dtype)
        mean_dtype = np.result_type(count_dtype, np.float32)
        draw_dtype = count_dtype if final == "sample" else mean_dtype
        layers = _layers(n_samples, quantiles, draw_dtype, mean_dtype)
        in_use = {"the counts": args["layer"], "their mask": args["mask_layer"]}
        in_use |= {"`sites`": sites} if isinstance(sites, str) else {}
        if is_written:
            _check_key(key_added, list(layers), in_use)
            _check_can_write(data)
        else:
            layers = {"": layers[""]} if return_mean else {}
        rows, order = unique_rows(indices, data)
        source = self._source(adata, unseen_to_null, rows)
        choose, n_folds = _which_sites(sites, data, source, rows, self.module.expressed is not None, n_folds)
        batch_size, seed = choose_batch_size(batch_size), choose_seed(seed)

        is_sparse = sp.issparse(source.counts) or isinstance(source.counts, CSRDataset | CSCDataset)
        shape = (len(rows), source.counts.shape[1])
        canvases = {suffix: Canvas(shape, dtype, is_sparse) for suffix, (dtype, _) in layers.items()}
        all_draws = None if return_mean else np.empty((n_asked, *shape), draw_dtype)

        n_done = 0
        filling = self._fill(
            source,
            rows,
            choose,
            sampler,
            n_folds=n_folds,
            n_samples=n_samples,
            batch_size=batch_size,
            seed=seed,
            silent=silent,
        )
        for counts, filled, draws in filling:
            cells, genes = np.nonzero(filled)
            genes = source.columns[genes]
            for suffix, (dtype, summarise) in layers.items():
                around = np.zeros_like(counts) if suffix == "_sd" else counts
                canvases[suffix].add(_put(around, (cells, genes), summarise(draws), dtype))
            if all_draws is not None:
                block = all_draws[:, n_done : n_done + len(counts)]
                block[:] = counts
                block[:, cells, genes] = as_dtype(draws, draw_dtype)
            n_done += len(counts)

        results = {suffix: canvas.finish(order) for suffix, canvas in canvases.items()}
        if is_written:
            settings_used = sampler.describe() | {"n_samples": n_samples, "n_folds": n_folds, "seed": seed}
            settings_used |= {"batch_size": batch_size, "version": version("sccountsdiff")}
            # Not every version of AnnData can write None.
            settings_used |= {name: args[name] for name in ("layer", "mask_layer") if args[name] is not None}
            matrices = {key_added + suffix: matrix for suffix, matrix in results.items()}
            _write(data, key_added, matrices, settings_used, keep=set(in_use.values()))
        if all_draws is not None:
            return all_draws if order is None else all_draws[:, order]
        return results[""]


# What is asked for, and whether it can be had


def _check_quantiles(
    quantiles: Sequence[float] | float | None, n_samples: int, is_deterministic: bool, is_written: bool
) -> list[float]:
    if quantiles is None:
        return []
    quantiles = [float(q) for q in np.ravel(quantiles)]
    if quantiles and is_deterministic:
        raise ValueError(
            "`quantiles` need draws, but `n_steps=1, final='mean'` is an expectation, the same each time: use "
            "`final='sample'`."
        )
    if quantiles and (n_samples == 1 or not all(0 <= q <= 1 for q in quantiles)):
        raise ValueError("`quantiles` must be within [0, 1] and need `n_samples` above 1.")
    if quantiles and not is_written:
        raise ValueError(
            "`quantiles` are written to layers, but nothing is written with `key_added=None` or `indices`: leave them "
            "out, and take them from the draws of `return_mean=False`."
        )
    return list({f"{q:g}": q for q in quantiles}.values())  # of two with the same name, one


def _check_key(key: str, suffixes: list[str], in_use: Mapping[str, str | None]) -> None:
    """Refuse a name under which the layers of the result would replace what the model reads."""
    if not isinstance(key, str) or not key:
        raise ValueError(f"`key_added` must be the name of a layer or None, not {key!r}.")
    for what, layer in in_use.items():
        if layer in [key + suffix for suffix in suffixes]:
            raise ValueError(
                f"`key_added={key!r}` would overwrite adata.layers[{layer!r}], which holds {what}: choose another name."
            )


def _check_can_write(data: AnnData) -> None:
    if data.is_view and data.isbacked:
        raise ValueError(
            "`adata` is a view of data in a file, to which no layer can be added: pass the whole data with `indices`, "
            "or `key_added=None`, or `adata.to_memory()`."
        )


def _which_sites(sites, data: AnnData, source: CellSource, rows: np.ndarray, zeros_missing: bool, n_folds: int):
    """The function that says which entries of a block to fill in, and in how many folds."""
    if sites is not None:
        if isinstance(sites, str):
            sites = get_matrix(data, sites, "sites")
        if isinstance(sites, pd.DataFrame):
            if not (sites.index.equals(data.obs_names) and sites.columns.equals(data.var_names)):
                raise ValueError(
                    "`sites` does not have the names of cells and genes of adata, in their order: "
                    "pass sites.loc[adata.obs_names, adata.var_names]."
                )
            sites = sites.to_numpy()
        sites = by_rows(as_matrix(sites, "sites"))
        check_mask(sites, data.shape, name="sites", meaning="fill in")
        strangers = np.setdiff1d(np.arange(data.n_vars), source.columns)
        if len(strangers):
            asked = sum(np.asarray(block[:, strangers].sum(0)).ravel() for _, block in iter_row_chunks(sites))
            if asked.any():
                gene = data.var_names[strangers[asked.argmax()]]
                raise ValueError(f"`sites` asks for gene {gene!r}, which the model was not trained on.")
        return lambda rows, counts, missing: source.select(read_rows(sites, rows)).astype(bool), 1
    # What becomes of a cell must not depend on which others are asked for, so all cells count. Those asked for come
    # first: a missing entry there settles it.
    others = np.delete(np.arange(source.n_cells), rows)
    if zeros_missing or _any_missing(source, rows) or _any_missing(source, others):
        return lambda rows, counts, missing: missing, 1
    logger.info("No count is marked as missing: imputing all zeros, in %d folds.", n_folds)
    return lambda rows, counts, missing: counts == 0, n_folds


def _any_missing(source: CellSource, rows: np.ndarray) -> bool:
    """Whether an entry of the model's genes is missing in these cells; what other genes hold does not matter."""
    if source.counts.dtype.kind == "f":
        for _, block in iter_some_rows(source.counts, rows):
            if np.isnan(values_of(source.select(block))).any():
                return True
    if source.mask is not None:
        for _, block in iter_some_rows(source.mask, rows):
            block = source.select(block)
            if int((block != 0).sum()) < block.shape[0] * block.shape[1]:
                return True
    return False


# How the answer is put together


def _layers(
    n_samples: int, quantiles: list[float], draw_dtype: np.dtype, mean_dtype: np.dtype
) -> dict[str, tuple[np.dtype, Callable[[np.ndarray], np.ndarray]]]:
    """The layers that are written, by the suffix of their names: their types, and how ``(draws, entries)`` become one."""
    if n_samples == 1:
        return {"": (draw_dtype, lambda draws: draws[0])}
    layers = {
        "": (mean_dtype, lambda draws: draws.mean(0)),
        "_sd": (np.dtype(np.float32), lambda draws: draws.std(0, ddof=1)),
    }
    return layers | {f"_q{q:g}": (draw_dtype, partial(_quantile, q=q)) for q in quantiles}


def _quantile(draws: np.ndarray, q: float) -> np.ndarray:
    """The least draw with at least the share ``q`` of them at or below it; between two counts there is none."""
    # Of 100 draws a share of 0.07 is 7, not the 7.000000000000001 that floating point makes of it.
    position = max(math.ceil(q * len(draws) - 1e-9) - 1, 0)
    return np.partition(draws, position, axis=0)[position]


def _put(block: np.ndarray, places: tuple[np.ndarray, np.ndarray], values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """A copy of the block with the values in some places."""
    out = block.astype(dtype)
    out[places] = as_dtype(values, dtype)
    return out


def _write(
    data: AnnData,
    key: str,
    layers: Mapping[str, np.ndarray | sp.csr_matrix],
    settings: dict,
    keep: set[str | None],
) -> None:
    """Layers, and a note on how they were made.

    Further layers of an earlier result of that name, which would be taken as of this one, go; but not those to ``keep``.
    """
    notes = {name: note for name, note in data.uns.get("sccountsdiff", {}).items() if isinstance(note, Mapping)}
    earlier = set(notes.get(key, {}).get("layers", []))
    others = {layer for name, note in notes.items() if name != key for layer in note.get("layers", [])}
    for name, matrix in layers.items():
        data.layers[name] = matrix
    for name in earlier - others - keep - set(layers):
        if name in data.layers:
            del data.layers[name]
    data.uns["sccountsdiff"] = {**data.uns.get("sccountsdiff", {}), key: settings | {"layers": list(layers)}}
