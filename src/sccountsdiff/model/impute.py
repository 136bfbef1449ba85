"""Filling in counts: imputation, denoising, and what a model expects of every entry."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version

import numpy as np
import pandas as pd
import scipy.sparse as sp
import torch
from anndata import AnnData
from anndata.abc import CSCDataset, CSRDataset
from mudata import MuData
from tqdm.auto import tqdm

from sccountsdiff.data.loading import CellSource
from sccountsdiff.data.reading import as_matrix, iter_row_chunks, read_rows
from sccountsdiff.data.splitting import row_blocks
from sccountsdiff.data.validation import check_mask
from sccountsdiff.diffusion import ABSENT, KNOWN, NOISED, guide, log_likelihood
from sccountsdiff.model.canvas import Canvas
from sccountsdiff.model.sampler import Sampler, choose_batch_size, choose_seed, make_generator, require_positive
from sccountsdiff.module import OBSERVED_KEY

logger = logging.getLogger("sccountsdiff")

_FOLDS = 2**32 - 1  # key of the generator that assigns folds; no draw has that number

ChooseSites = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""From rows, counts of the model's genes and which are absent, to which are to be filled in."""


class ImputeMixin:
    """Everything that reads cells and predicts some of their entries from the others."""

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
            self.module, n_steps, known, guidance, attrition, rounding, final, jump_length, n_resamples
        )  # fmt: skip
        if sampler.is_deterministic:
            n_samples = 1
        quantiles = list(quantiles or [])
        if quantiles and (n_samples == 1 or not all(0 <= q <= 1 for q in quantiles)):
            raise ValueError("`quantiles` must be within [0, 1] and need `n_samples` above 1.")
        data = self._counts_of(adata)
        source = self._source(adata, unseen_to_null)
        rows, order = _unique_rows(indices, data)
        choose, n_folds = _which_sites(sites, data, source, self.module.expressed is not None, n_folds)
        seed = choose_seed(seed)

        is_sparse = sp.issparse(source.counts) or isinstance(source.counts, CSRDataset | CSCDataset)
        count_dtype = _count_dtype(source.counts.dtype)
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
        rows, order = _unique_rows(indices, self._counts_of(adata))
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
        rows, order = _unique_rows(indices, data)
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
        rows, order = _unique_rows(indices, self._counts_of(adata))
        dtype = _count_dtype(source.counts.dtype) if sampler.final == "sample" else np.float32
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
        rows, order = _unique_rows(indices, self._counts_of(adata))
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

    # One way for all of it ------------------------------------------------------------------------------------------

    def _fill(
        self,
        source: CellSource,
        rows: np.ndarray,
        choose: ChooseSites,
        n_folds: int,
        sampler: Sampler,
        n_samples: int,
        batch_size: int | None,
        seed: int,
        silent: bool,
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield, block by block, the counts as they are, the entries filled in, and ``(n_samples, entries)`` draws."""
        device = self.module.device
        for number, block in self._blocks(rows, batch_size, silent, "Imputing"):
            counts, tensors = source.read(block, OBSERVED_KEY)
            cells = self.module.read(tensors)
            x0, absent = cells["x0"], cells["absent"]
            filled = choose(block, source.select(counts), absent.cpu().numpy())
            sites = torch.from_numpy(filled).to(device)
            if n_folds > 1:
                generator = make_generator(device, seed, number, _FOLDS)
                fold_of = torch.randint(n_folds, sites.shape, generator=generator, device=device)
            draws = torch.zeros(n_samples, *x0.shape, device=device)
            for fold in range(n_folds):
                chosen = sites & (fold_of == fold) if n_folds > 1 else sites
                if not chosen.any():
                    continue
                status = torch.full_like(x0, KNOWN).masked_fill(absent, ABSENT).masked_fill(chosen, NOISED)
                for k in range(n_samples):
                    generator = make_generator(device, seed, number, k, fold)
                    draw = sampler.draw(x0, status, cells["categories"], cells["continuous"], generator)
                    draws[k][chosen] = draw[chosen]
            yield counts, filled, draws[:, sites].cpu().numpy()

    def _blocks(self, rows: np.ndarray, batch_size: int | None, silent: bool, what: str):
        blocks = list(row_blocks(rows, choose_batch_size(batch_size)))
        self.module.eval()
        return tqdm(blocks, desc=what, unit="block", disable=silent)

    @property
    def _known_default(self) -> str:
        return "clean" if self.module.observed_training else "noised"

    def _require_trained(self) -> None:
        if not self.is_trained:
            raise RuntimeError("The model is not trained yet: call `model.train()` first.")


def _everything(rows: np.ndarray, counts: np.ndarray, absent: np.ndarray) -> np.ndarray:
    return np.ones(absent.shape, dtype=bool)


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


def _count_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype of the counts, unless a draw may not fit into it."""
    if dtype.kind in "iu":
        return dtype if dtype.itemsize >= 4 else np.dtype(np.int32)
    return dtype if dtype.kind == "f" and dtype.itemsize >= 4 else np.dtype(np.float32)


def _unique_rows(indices: Sequence[int] | None, data: AnnData) -> tuple[np.ndarray, np.ndarray | None]:
    """Sorted rows to compute, and where each of the ``indices`` is found among them."""
    if indices is None:
        return np.arange(data.n_obs), None
    indices = np.asarray(indices)
    if indices.dtype == bool:
        if indices.shape != (data.n_obs,):
            raise ValueError(f"Boolean `indices` must have one value for each of the {data.n_obs} cells.")
        indices = np.flatnonzero(indices)
    if len(indices) == 0:
        raise ValueError("`indices` names no cell.")
    if indices.min() < -data.n_obs or indices.max() >= data.n_obs:
        raise IndexError(f"`indices` must be positions among the {data.n_obs} cells.")
    rows, order = np.unique(indices % data.n_obs, return_inverse=True)
    return rows, order
