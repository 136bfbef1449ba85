"""Modalities side by side: counts, masks and names, whichever cells each modality has."""

from __future__ import annotations

import mudata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from anndata import AnnData

from sccountsdiff.data.modalities import JOINED_MASK, join_modalities, layers_of

NAMES = ["rna", "prot"]


def part(counts, cells, prefix):
    counts = np.asarray(counts, dtype=np.float32)
    var = pd.DataFrame(index=[f"{prefix}{j}" for j in range(counts.shape[1])])
    return AnnData(counts, obs=pd.DataFrame(index=list(cells)), var=var)


@pytest.fixture
def rna():
    return part(np.arange(12).reshape(4, 3), "abcd", "g")


@pytest.fixture
def prot():
    return part([[7, 8], [9, 10]], "db", "p")


@pytest.fixture
def mdata(rna, prot):
    return mudata.MuData({"rna": rna, "prot": prot})


def test_cells_find_their_rows(mdata):
    joined = join_modalities(mdata, NAMES)
    assert joined.adata.obs_names.equals(mdata.obs_names)
    assert list(joined.adata.var_names) == ["g0", "g1", "g2", "p0", "p1"]
    assert joined.adata.var["feature_types"].tolist() == ["rna"] * 3 + ["prot"] * 2
    table = joined.adata.to_df()
    for name in NAMES:
        own = mdata[name].to_df()
        pd.testing.assert_frame_equal(table.loc[own.index, own.columns], own, check_names=False)
    np.testing.assert_array_equal(joined.present, [[True, False], [True, True], [True, False], [True, True]])
    assert not table.to_numpy()[~joined.mask[:]].any()
    for name, place in zip(NAMES, joined.parts, strict=True):
        np.testing.assert_array_equal(table.to_numpy()[place.cells][:, place.features], mdata[name].X)


@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csc_matrix, sp.csr_array])
def test_sparse_where_one_is_and_the_same(mdata, kind):
    expected = join_modalities(mdata, NAMES).adata.X
    mdata["rna"].X = kind(mdata["rna"].X)
    counts = join_modalities(mdata, NAMES).adata.X
    assert isinstance(expected, np.ndarray) and isinstance(counts, sp.csr_matrix)
    np.testing.assert_array_equal(counts.toarray(), expected)
    mdata["prot"].X = kind(mdata["prot"].X)
    np.testing.assert_array_equal(join_modalities(mdata, NAMES).adata.X.toarray(), expected)


def test_missing_counts_stay_missing(mdata):
    mdata["prot"].X[0, 1] = np.nan
    mdata["rna"].X = sp.csr_matrix(mdata["rna"].X)
    joined = join_modalities(mdata, NAMES).adata
    assert np.argwhere(np.isnan(joined.to_df().to_numpy())).tolist() == [[3, 4]]


def test_nothing_of_the_data_is_changed(mdata):
    before = mdata.copy()
    join_modalities(mdata, NAMES).adata.X[:] = -1
    for name in NAMES:
        np.testing.assert_array_equal(mdata[name].X, before[name].X)
    assert set(mdata.mod) == set(before.mod) and not set(mdata.obsm) - set(before.obsm)


@pytest.mark.parametrize("sparse", [False, True])
def test_a_mask_of_one_modality_leaves_the_other_as_it_is(mdata, sparse):
    mask = np.array([[True, False], [False, True]])
    mdata["prot"].layers["seen"] = sp.csr_matrix(mask) if sparse else mask
    joined = join_modalities(mdata, NAMES, mask_layer={"prot": "seen"})
    expected = join_modalities(mdata, NAMES).mask[:]
    expected[[3, 1], 3:] &= mask
    found = joined.adata.layers[JOINED_MASK]
    np.testing.assert_array_equal(found.toarray() if sparse else found, expected)


def test_layers_by_modality(mdata):
    mdata["prot"].layers["raw"] = mdata["prot"].X + 1
    both = join_modalities(mdata, NAMES, layer={"prot": "raw"}).adata.to_df()
    assert both.loc["d", "p0"] == 8 and both.loc["d", "g0"] == 9
    assert layers_of("layer", "raw", NAMES) == {"rna": "raw", "prot": "raw"}
    with pytest.raises(KeyError, match="`layer` names 'adt', but counts are in rna, prot"):
        join_modalities(mdata, NAMES, layer={"adt": "raw"})


class TestNames:
    def test_begin_with_the_modality_only_if_two_are_the_same(self, mdata):
        mdata["prot"].var_names = ["g0", "p1"]
        names = ["rna:g0", "rna:g1", "rna:g2", "prot:g0", "prot:p1"]
        assert list(join_modalities(mdata, NAMES).adata.var_names) == names

    def test_are_those_that_the_model_knows(self, mdata, rna):
        plain = join_modalities(mdata, NAMES).features
        mdata["prot"].var_names = ["g0", "p1"]
        prefixed = join_modalities(mdata, NAMES).features
        alone = mudata.MuData({"rna": rna})
        for known in (plain, prefixed):
            joined = join_modalities(alone, NAMES, known=known)
            assert list(joined.adata.var_names) == [name for own in known.names.values() for name in own]
            assert joined.present.tolist() == [[True, False]] * 4
            assert sp.issparse(joined.adata.X) and joined.adata.X.nnz == np.count_nonzero(rna.X)


class TestRefusals:
    def test_cells_that_are_not_in_the_whole(self, mdata):
        mdata["prot"].obs_names = ["d", "z"]
        with pytest.raises(ValueError, match=r"Modality 'prot' has cells that the MuData does not have.*mdata\.update"):
            join_modalities(mdata, NAMES)

    def test_a_layer_that_is_not_there(self, mdata):
        with pytest.raises(KeyError, match="layer='raw' is not in adata.layers"):
            join_modalities(mdata, NAMES, layer={"prot": "raw"})

    def test_files(self, mdata, tmp_path):
        mdata.write(tmp_path / "cells.h5mu")
        with pytest.raises(ValueError, match="Modality 'rna' is in a file: .* have to be in memory"):
            join_modalities(mudata.read_h5mu(tmp_path / "cells.h5mu", backed="r"), NAMES)


def test_a_query_without_the_mask_is_taken_as_observed(mdata):
    known = join_modalities(mdata, NAMES).features
    with pytest.warns(UserWarning, match="mask_layer='seen', which modality 'prot' does not have"):
        joined = join_modalities(mdata, NAMES, mask_layer={"prot": "seen"}, known=known)
    assert not joined.has_mask and joined.mask[:].sum() == 4 * 3 + 2 * 2
