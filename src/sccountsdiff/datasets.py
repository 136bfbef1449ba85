"""Real data that comes with the dependencies, so that nothing has to be downloaded."""

from __future__ import annotations

import numpy as np
import scanpy as sc
import scipy.sparse as sp
from anndata import AnnData


def pbmc68k() -> AnnData:
    """700 peripheral blood cells with 765 genes: counts of the subset of 10x's 68k PBMC data that scanpy bundles.

    scanpy ships the data normalised to 10,000 counts per cell, logarithmised and rounded to three decimals, with the
    totals of the cells; the counts are recovered from these exactly.

    Returns
    -------
    AnnData with integer counts in ``X`` (CSR, float32) and ``obs["cell_type"]`` (10 types).

    Examples
    --------
    >>> import sccountsdiff
    >>> sccountsdiff.datasets.pbmc68k().shape
    (700, 765)
    """
    bundled = sc.datasets.pbmc68k_reduced()
    counts = sp.csr_matrix(bundled.raw.X, dtype=np.float64)
    totals = bundled.obs["n_counts"].to_numpy(dtype=np.float64)
    counts.data = np.expm1(counts.data) * np.repeat(totals, np.diff(counts.indptr)) / 1e4
    off = np.abs(counts.data - np.rint(counts.data)).max()
    if off > 0.25:  # three decimals leave less than 0.1, on counts above 200
        raise RuntimeError(
            f"scanpy's pbmc68k_reduced has changed: its counts are no longer whole numbers (off by {off})."
        )
    counts.data = np.rint(counts.data)
    counts.eliminate_zeros()
    adata = AnnData(counts.astype(np.float32), obs=bundled.obs[["bulk_labels"]], var=bundled.raw.var[[]])
    adata.obs.columns = ["cell_type"]
    adata.uns["source"] = "10x Genomics, 68k PBMC (CC BY 4.0), as bundled with scanpy (pbmc68k_reduced)"
    return adata
