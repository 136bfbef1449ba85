"""Matrices in every format in which they may come."""

from __future__ import annotations

import anndata as ad
import numpy as np
import pytest
import scipy.sparse as sp

from sccountsdiff.data import reading

IN_MEMORY = {
    "dense": np.asarray,
    "fortran": np.asfortranarray,
    "csr_matrix": sp.csr_matrix,
    "csc_matrix": sp.csc_matrix,
    "csr_array": sp.csr_array,
    "csc_array": sp.csc_array,
    "coo_matrix": sp.coo_matrix,
}
BACKED = {"backed dense": np.asarray, "backed csr": sp.csr_matrix, "backed csc": sp.csc_matrix}


@pytest.fixture(params=[*IN_MEMORY, *BACKED])
def fmt(request):
    """Name of a format."""
    return request.param


@pytest.fixture(params=[*IN_MEMORY, *BACKED])
def mask_fmt(request):
    """Name of a format for a second matrix."""
    return request.param


@pytest.fixture
def store(tmp_path):
    """Return a function that stores a dense matrix in a given format, in memory or in an h5ad file."""
    opened = []

    def _store(dense, fmt):
        if fmt in IN_MEMORY:
            return IN_MEMORY[fmt](dense)
        path = tmp_path / f"{len(opened)}.h5ad"
        ad.AnnData(BACKED[fmt](dense)).write_h5ad(path)
        opened.append(ad.read_h5ad(path, backed="r"))
        return opened[-1].X

    yield _store
    for adata in opened:
        adata.file.close()


@pytest.fixture
def small_blocks(monkeypatch):
    """Make blocks of 20 entries, so that small matrices have many."""
    monkeypatch.setattr(reading, "BLOCK_ENTRIES", 20)
