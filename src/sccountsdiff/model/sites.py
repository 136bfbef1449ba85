"""Which entries are filled in: those that the user names, those that are missing, or the zeros."""

from __future__ import annotations

import hashlib
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import scipy.sparse as sp
from anndata import AnnData

from sccountsdiff.data.counts import get_matrix
from sccountsdiff.data.missing import check_mask_block, check_mask_form
from sccountsdiff.data.reading import Matrix, as_matrix, by_rows, iter_some_rows, read_rows
from sccountsdiff.data.source import CellSource
from sccountsdiff.model.engine import ChooseSites

Sites: TypeAlias = "np.ndarray | sp.spmatrix | pd.DataFrame | str"


def named_sites(sites: Sites, data: AnnData, source: CellSource) -> ChooseSites:
    """The entries that the user names, checked."""
    matrix = read_sites(sites, data)

    def choose(rows: np.ndarray, counts: np.ndarray, missing: np.ndarray) -> np.ndarray:
        return source.select(read_rows(matrix, rows)).astype(bool)

    others = np.setdiff1d(np.arange(data.n_vars), source.columns)  # genes that the model does not have
    if matrix.dtype.kind == "b" and not len(others):
        return choose
    n_asked = np.zeros(len(others))
    for rows, block in iter_some_rows(matrix, np.arange(data.n_obs)):
        check_mask_block(block, rows, range(data.n_vars), name="sites", meaning="fill in")
        n_asked += np.asarray(block[:, others].sum(0)).ravel()
    if n_asked.any():
        gene = data.var_names[others[n_asked.argmax()]]
        raise ValueError(f"`sites` asks for gene {gene!r}, which the model was not trained on.")
    return choose


def digest_of(sites: Sites | None, data: AnnData) -> str | None:
    """A short name for the entries that the user names: the same for the same ones, however they are given."""
    if sites is None:
        return None
    digest = hashlib.sha256()
    for _, block in iter_some_rows(read_sites(sites, data), np.arange(data.n_obs)):
        for positions in block.nonzero():
            digest.update(positions.astype(np.int64).tobytes())
    return digest.hexdigest()


def read_sites(sites: Any, data: AnnData) -> Matrix:
    """The entries that the user names, as a matrix in the form of the counts."""
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
    return check_mask_form(sites, data.shape, name="sites", meaning="fill in")


def within(source: CellSource, choose: ChooseSites) -> ChooseSites:
    """Of these entries those of genes that the data has: others would have no place in the result."""
    if source.present.all():
        return choose
    return lambda rows, counts, missing: choose(rows, counts, missing & source.present) & source.present


def missing_entries(rows: np.ndarray, counts: np.ndarray, missing: np.ndarray) -> np.ndarray:
    """Entries without a count."""
    return missing


def zeros(rows: np.ndarray, counts: np.ndarray, missing: np.ndarray) -> np.ndarray:
    """Entries with a count of 0, or without one."""
    return (counts == 0) | missing


def only(genes: np.ndarray, choose: ChooseSites) -> ChooseSites:
    """Of the entries that are chosen, those of some genes, given by their positions in the model."""

    def choose_some(rows: np.ndarray, counts: np.ndarray, missing: np.ndarray) -> np.ndarray:
        chosen = np.zeros(missing.shape, dtype=bool)
        chosen[:, genes] = choose(rows, counts, missing)[:, genes]
        return chosen

    return choose_some
