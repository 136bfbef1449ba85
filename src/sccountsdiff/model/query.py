"""From a reference to new cells: data made ready for a model, and a model that goes on learning from them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
import scipy.sparse as sp
import torch
from anndata import AnnData
from mudata import MuData
from torch import Tensor

from sccountsdiff.compat import is_mudata_setup, layer_names, setup_args
from sccountsdiff.data.counts import get_matrix
from sccountsdiff.data.covariates import check_new_categories
from sccountsdiff.data.messages import listing
from sccountsdiff.data.reading import DaskMatrix, Matrix, as_matrix, dense, is_sparse
from sccountsdiff.data.source import match_genes
from sccountsdiff.model.base import CountsDiffBase

if TYPE_CHECKING:
    from sccountsdiff.model import CountsDiffImputer

logger = logging.getLogger("sccountsdiff")


class QueryMixin(CountsDiffBase):
    """Queries of a reference model, as in scvi-tools."""

    @classmethod
    def prepare_query_anndata(
        cls,
        adata: AnnData,
        reference_model: str | Path | CountsDiffImputer,
        return_reference_var_names: bool = False,
        inplace: bool = True,
        *,
        layer: str | None = None,
    ) -> AnnData | pd.Index | None:
        """Give data the genes of a model, in its order, and the columns that it reads.

        Methods of the model take data with fewer or more genes as they are. This is for data that is to hold imputed counts
        of genes that it lacks, and for :meth:`load_query_data`.

        Absent genes are added as missing: NaN in the counts (which become floating-point numbers) and in other layers,
        False in the mask. Genes that the model does not have go, and so does what else is known of genes (``varm``, ``varp``,
        ``raw``) if some are added. Absent covariates are added as columns of NaN, for ``unseen_to_null=True``.

        Parameters
        ----------
        adata
            Data, in memory.
        reference_model
            A model, or the folder that one was saved to.
        return_reference_var_names
            Return the names of the model's genes, and do nothing else.
        inplace
            Change ``adata`` instead of returning other data.
        layer
            Layer with the counts, ``"X"`` for ``adata.X``, from where they are put where the model reads them. Default:
            they are there.

        Returns
        -------
        Nothing, or the data with ``inplace=False``, or the names.

        Examples
        --------
        >>> import sccountsdiff
        >>> few = adata[:, 10:].copy()
        >>> sccountsdiff.CountsDiffImputer.prepare_query_anndata(few, model)
        >>> few.shape == adata.shape
        True
        """
        reference = cls._reference(reference_model)
        genes = pd.Index(reference.gene_names)
        if return_reference_var_names:
            return genes
        if not isinstance(adata, AnnData) or is_mudata_setup(reference.registry_):
            found = "the model was set up with MuData" if isinstance(adata, AnnData) else f"not {type(adata).__name__}"
            raise TypeError(f"`adata` must be an AnnData, and the model one of AnnData: {found}.")
        if adata.isbacked:
            raise ValueError("`adata` is in a file: pass `adata.to_memory()`.")
        counts = get_matrix(adata, reference._cells(adata, layer).layer, None if layer is None else "layer")
        place = setup_args(reference.registry_)["layer"]
        positions = match_genes(adata.var_names, genes)
        if (positions >= 0).all():
            query = adata[:, positions].copy()
            counts = as_matrix(counts, "counts")[:, positions]
        else:
            query = AnnData(
                None if adata.X is None else _padded(adata.X, positions),
                obs=adata.obs.copy(),
                var=adata.var.reindex(genes),
                uns=dict(adata.uns),
                obsm=dict(adata.obsm),
                obsp=dict(adata.obsp),
                layers={name: _padded(adata.layers[name], positions) for name in layer_names(adata)},
            )
            counts = _padded(counts, positions)
        if place is None:
            query.X = counts
        else:
            query.layers[place] = counts
        lacking = [key for key in (*reference.categories, *reference.continuous_keys) if key not in query.obs]
        for key in lacking:
            query.obs[key] = np.nan
        if lacking:
            logger.info("Without covariates %s: pass unseen_to_null=True to methods of the model.", listing(lacking))
        if not inplace:
            return query
        adata._init_as_actual(query)
        return None

    @classmethod
    def load_query_data(
        cls,
        adata: AnnData | MuData,
        reference_model: str | Path | CountsDiffImputer,
        *,
        unfrozen: bool = False,
    ) -> Self:
        """A model that starts from another one's weights, to be trained on new cells, which may have new categories.

        A new category of a covariate starts as the mean of those that are known. The model can be used at once: until it is
        trained, it says of cells of known categories just what the reference says, and after training the better weights
        stay, by the loss on validation cells.

        Parameters
        ----------
        adata
            New cells, with the model's genes in its order and all of its covariates; see :meth:`prepare_query_anndata`.
        reference_model
            A trained model, which is left as it is, or the folder that one was saved to.
        unfrozen
            Train all weights. Default: only what stands for the new categories, so that all else that the model says stays
            as it is.

        Returns
        -------
        The model.

        Examples
        --------
        >>> import sccountsdiff
        >>> cells = sccountsdiff.datasets.pbmc68k()[:60, :25].copy()
        >>> cells.obs["batch"] = ["first"] * 40 + ["second"] * 20
        >>> old, new = cells[:40].copy(), cells[40:].copy()
        >>> sccountsdiff.CountsDiffImputer.setup_anndata(old, batch_key="batch")
        >>> reference = sccountsdiff.CountsDiffImputer(old)
        >>> reference.train(max_epochs=1, enable_progress_bar=False)
        >>> model = sccountsdiff.CountsDiffImputer.load_query_data(new, reference)
        >>> model.categories["batch"].tolist()
        ['first', 'second']
        >>> model.train(max_epochs=1, plan_kwargs={"lr": 0.01}, enable_progress_bar=False)
        """
        reference = cls._reference(reference_model)
        reference._require_trained()
        check_new_categories(reference._cells(adata).categorical_obs, reference.categories)
        registry = reference.registry_
        setup = cls.setup_mudata if is_mudata_setup(registry) else cls.setup_anndata
        setup(adata, source_registry=registry, extend_categories=True, **setup_args(registry))
        given = reference.init_params_
        model = cls(
            adata, **given["non_kwargs"], **{k: v for group in given["kwargs"].values() for k, v in group.items()}
        )
        n_known = [len(known) for known in reference.categories.values()]
        if not unfrozen and n_known == [len(known) for known in model.categories.values()]:
            raise ValueError(
                "The categories of adata are all known to the model, so that there is nothing to train: pass "
                "`unfrozen=True` to train all weights, or use the reference model itself."
            )
        model.module.load_state_dict(_extended(reference.module.state_dict(), model.module.state_dict()))
        if not unfrozen:
            model._freeze(n_known)
        before, after = getattr(reference, "seen_covariates_", None), model.seen_covariates_
        if before is not None:  # what is generated may be like cells of either
            model.seen_covariates_ = {name: np.concatenate([before[name], after[name]]) for name in after}
        model.module.eval()
        model.is_trained = True
        model.to_device(reference.module.device)
        return model

    @classmethod
    def _reference(cls, model: str | Path | CountsDiffImputer) -> Self:
        """The model itself, or the one that was saved to a folder."""
        if isinstance(model, cls):
            return model
        if not isinstance(model, str | Path):
            raise TypeError(
                f"`reference_model` must be a {cls.__name__} or the folder that one was saved to, not "
                f"{type(model).__name__}."
            )
        return cls.load(str(model), adata=False)


def _padded(matrix: Any, positions: np.ndarray) -> Matrix:
    """Columns by position; those at -1 are missing: NaN, or False in a mask."""
    matrix = as_matrix(matrix, "counts")
    matrix = matrix[:] if isinstance(matrix, DaskMatrix) else matrix
    absent = positions < 0
    if matrix.dtype.kind != "b":
        # Whole numbers of more than 2 bytes are not all exact in single precision.
        small = matrix.dtype.kind == "f" or matrix.dtype.itemsize <= 2
        matrix = matrix.astype(np.result_type(matrix.dtype, np.float32) if small else np.float64)
    is_mask = matrix.dtype.kind == "b"
    if not is_sparse(matrix):
        padded = dense(matrix)[:, positions]
        padded[:, absent] = False if is_mask else np.nan
        return padded
    order = np.empty(len(positions), dtype=int)
    order[~absent], order[absent] = np.arange((~absent).sum()), np.arange((~absent).sum(), len(positions))
    shape = n_cells, n_absent = matrix.shape[0], int(absent.sum())
    others = sp.csr_matrix(shape, dtype=bool)
    if not is_mask:
        values, ends = np.full(n_cells * n_absent, np.nan, matrix.dtype), np.arange(n_cells + 1) * n_absent
        others = sp.csr_matrix((values, np.tile(np.arange(n_absent), n_cells), ends), shape=shape)
    return sp.hstack([matrix[:, positions[~absent]], others], format="csr")[:, order]


def _extended(old: dict[str, Tensor], new: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights of a model, with rows for categories that it does not have."""
    state = {}
    for name, fresh in new.items():
        kept = old[name].to(fresh.device)
        if name == "n_categories":
            kept = fresh
        elif name == "expressed":  # rows of genes that the cells of new labels have are those of the new data
            kept = torch.cat([kept, fresh[len(kept) :]])
        elif len(fresh) > len(kept):
            kept = torch.cat([kept, kept.mean(0, keepdim=True).expand(len(fresh) - len(kept), -1)])
        state[name] = kept
    return state
