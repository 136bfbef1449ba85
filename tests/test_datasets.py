"""The bundled counts are those that scanpy normalised."""

from __future__ import annotations

import numpy as np
import pytest
import scanpy as sc
import scipy.sparse as sp

from sccountsdiff import datasets


@pytest.fixture(scope="module")
def adata():
    return datasets.pbmc68k()


@pytest.fixture(scope="module")
def bundled():
    return sc.datasets.pbmc68k_reduced()


def test_whole_numbers(adata):
    assert adata.shape == (700, 765)
    assert sp.issparse(adata.X) and adata.X.format == "csr" and adata.X.dtype == np.float32
    assert (adata.X.data >= 1).all() and (adata.X.data == np.rint(adata.X.data)).all()
    assert adata.X.data.max() > 100


def test_normalising_them_gives_what_scanpy_ships(adata, bundled):
    totals = bundled.obs["n_counts"].to_numpy(dtype=np.float64)
    again = np.log1p(adata.X.toarray().astype(np.float64) / totals[:, None] * 1e4)
    shipped = bundled.raw.X.toarray()
    np.testing.assert_array_equal(again > 0, shipped > 0)
    assert np.abs(again - shipped).max() < 5.01e-4  # which is rounded to three decimals


def test_cells_do_not_have_more_than_their_recorded_total(adata, bundled):
    totals = np.asarray(adata.X.sum(1)).ravel()
    recorded = bundled.obs["n_counts"].to_numpy()
    assert (totals <= recorded).all()
    assert (totals > 0.1 * recorded).all()  # 765 of some 17,000 genes, but the variable ones


def test_names_and_types(adata, bundled):
    assert adata.obs_names.equals(bundled.obs_names) and adata.var_names.equals(bundled.raw.var_names)
    assert adata.obs["cell_type"].tolist() == bundled.obs["bulk_labels"].tolist()
    assert adata.obs["cell_type"].nunique() == 10
    assert "68k" in adata.uns["source"]


def test_refuses_data_that_are_no_longer_counts(monkeypatch, bundled):
    changed = bundled.copy()
    changed.obs["n_counts"] = changed.obs["n_counts"] * 1.1
    monkeypatch.setattr(datasets.sc.datasets, "pbmc68k_reduced", lambda: changed)
    with pytest.raises(RuntimeError, match="no longer whole numbers"):
        datasets.pbmc68k()
