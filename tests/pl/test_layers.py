"""What imputation wrote is found, in whatever it is stored."""

from __future__ import annotations

import anndata as ad
import numpy as np
import pytest
import scipy.sparse as sp

from sccountsdiff.pl.layers import gene_values, note_of, spread_of


@pytest.fixture
def adata():
    data = ad.AnnData(np.arange(12.0).reshape(4, 3))
    data.var_names = ["a", "b", "c"]
    return data


def test_notes(adata):
    assert note_of(adata, "imputed") == {}
    adata.uns["sccountsdiff"] = {"imputed": {"layer": "umi"}, "seed": 3}
    assert note_of(adata, "imputed") == {"layer": "umi"}
    assert note_of(adata, "other") == note_of(adata, "seed") == {}, "no note, or one of another kind"


def test_spread(adata):
    with pytest.raises(KeyError, match=r"Layer 'x_sd' is not in adata.layers: `model.impute\(key_added='x'\)` writes"):
        spread_of(adata, "x")
    adata.layers["x_sd"] = adata.X
    assert spread_of(adata, "x") is adata.layers["x_sd"]


@pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix, sp.csc_matrix, sp.csr_array])
def test_values_of_a_gene(adata, make):
    values = gene_values(adata, make(adata.X), "b")
    assert isinstance(values, np.ndarray) and values.tolist() == [1, 4, 7, 10]
    with pytest.raises(KeyError, match="Gene 'z' is not in adata.var_names"):
        gene_values(adata, adata.X, "z")
