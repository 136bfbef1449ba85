"""Counts in Dask arrays: what is imputed is computed when it is needed, to the same numbers as in memory."""

from __future__ import annotations

import copy

import anndata as ad
import mudata
import numpy as np
import pytest
import scipy.sparse as sp
import torch

import sccountsdiff
from sccountsdiff import CountsDiffImputer
from sccountsdiff.model import lazy

da = pytest.importorskip("dask.array")
QUICK = {"batch_size": 8, "seed": 0, "silent": True}
DRAWS = {"n_samples": 2, "n_steps": 2}


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(lazy, "CHUNK_CELLS", 20)  # two batches, not a divisor of anything


def in_dask(adata, sparse, chunks=13) -> ad.AnnData:
    """The same data, its counts in a Dask array."""
    counts = adata.X.toarray() if sp.issparse(adata.X) else adata.X
    array = da.from_array(counts, chunks=(chunks, 5))
    return ad.AnnData(array.map_blocks(sp.csr_matrix) if sparse else array, obs=adata.obs, var=adata.var)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("asked", [{}, {"quantiles": [0.9]}, DRAWS, DRAWS | {"n_samples": 1, "final": "sample"}])
def test_the_same_numbers_and_forms_as_in_memory(trained, query, dense, sparse, asked):
    query.X = query.X if sparse else query.X.toarray()
    trained.impute(query, n_folds=2, **QUICK, **asked)
    large = in_dask(query, sparse)
    trained.impute(large, n_folds=2, **QUICK, **asked)
    assert set(large.layers) == set(query.layers) and large.uns["sccountsdiff"] == query.uns["sccountsdiff"]
    for name, layer in query.layers.items():
        assert isinstance(large.layers[name], da.Array)
        found = large.layers[name].compute(scheduler="sync")
        assert sp.issparse(found) == sp.issparse(layer) and found.dtype == layer.dtype == large.layers[name].dtype
        np.testing.assert_array_equal(dense(found), dense(layer))


def test_missing_entries_sites_genes_and_masks(masked, query, trained, sites, dense):
    model, _, _ = masked
    large = in_dask(model.adata, sparse=False)
    large.layers["seen"] = model.adata.layers["seen"]
    found = model.impute(large, key_added=None, **QUICK)
    np.testing.assert_array_equal(found.compute(scheduler="sync"), model.impute(key_added=None, **QUICK))
    asked = {"sites": sites, "genes": list(query.var_names[:3]), "key_added": None}
    expected = trained.impute(query, **QUICK, **asked)
    found = trained.impute(in_dask(query, sparse=True), **QUICK, **asked)
    np.testing.assert_array_equal(dense(found.compute(scheduler="sync")), dense(expected))


def test_nothing_is_computed_before_it_is_needed(trained, query):
    def fail(block):
        raise AssertionError("read too early")

    large = in_dask(query, sparse=False)
    large.X = large.X.map_blocks(fail, dtype=large.X.dtype, meta=np.empty((0, 0), large.X.dtype))
    found = trained.impute(large, **QUICK)
    with pytest.raises(AssertionError, match="read too early"):
        found.compute(scheduler="sync")


def test_some_cells_and_all_draws_are_in_memory(trained, query):
    expected = trained.impute(query, indices=[5, 2], **QUICK)
    large = in_dask(query, sparse=False)
    np.testing.assert_array_equal(trained.impute(large, indices=[5, 2], **QUICK), expected)
    asked = DRAWS | QUICK | {"return_mean": False, "n_folds": 2, "key_added": None}
    assert trained.impute(large, **asked).shape == (2, *query.shape)


def test_what_is_no_count_is_named_by_its_cell(trained, query):
    query.X = query.X.toarray()
    query.X[33, 2] = 0.5
    found = trained.impute(in_dask(query, sparse=False), **QUICK)
    with pytest.raises(ValueError, match=f"non-integer.*{query.obs_names[33]}.*{query.var_names[2]}"):
        found.compute(scheduler="sync")


def test_counts_beyond_single_precision_are_refused(trained, query):
    query.X = query.X.toarray().astype(np.float64)
    query.X[33, 2] = 2**24 + 1
    found = trained.impute(in_dask(query, sparse=False), **QUICK)
    with pytest.raises(ValueError, match="does not fit into single precision"):
        found.compute(scheduler="sync")


@pytest.mark.parametrize("sparse", [False, True])
def test_training_reads_them(simulate, train, sparse):
    adata = simulate(40).adata
    models = []
    for data in (adata, in_dask(adata, sparse)):
        CountsDiffImputer.setup_anndata(data)
        models.append(train(data, 1))
    ours, theirs = (model.module.state_dict() for model in models)
    assert all((ours[name] == theirs[name]).all() for name in ours)


@pytest.mark.slow
def test_a_cluster_of_two_processes_gives_the_same_integers(trained, query, dense):
    distributed = pytest.importorskip("distributed")
    asked = DRAWS | QUICK | {"n_samples": 1, "final": "sample", "n_folds": 2}
    expected = trained.impute(query, key_added=None, **asked)
    found = trained.impute(in_dask(query, sparse=True), **asked)
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster),
    ):
        computed = found.compute()
    np.testing.assert_array_equal(dense(computed), dense(expected))


def test_what_was_asked_for_is_not_changed_by_more_training(trained, query, dense):
    large = in_dask(query, sparse=True)
    model = copy.deepcopy(trained)
    expected = dense(model.impute(query, **QUICK))
    model.impute(large, **QUICK)
    with torch.no_grad():
        for weights in model.module.parameters():
            weights.add_(1.0)
    np.testing.assert_array_equal(dense(large.layers["imputed"].compute(scheduler="sync")), expected)


@pytest.mark.slow
def test_minibatches_are_read_by_another_process(simulate, seeded):
    """It is forked, and has none of the threads that Dask has started here."""
    adata = in_dask(simulate(60).adata, sparse=True, chunks=7)
    found = []
    for options in ({}, {"num_workers": 1, "timeout": 30}):
        with seeded(0):
            model = CountsDiffImputer(adata, n_hidden=8, n_layers=1)
            model.train(1, batch_size=16, datasplitter_kwargs=options, accelerator="cpu", enable_progress_bar=False)
        found.append(model.history["train_loss"].to_numpy(float))
    np.testing.assert_array_equal(*found)


def test_what_was_imputed_is_drawn(trained, query):
    large = in_dask(query, sparse=True)
    large.obsm["X_first"] = query.X.toarray()[:, :2]
    trained.impute(large, **QUICK)
    first, second = large.var_names[:2]
    assert len(sccountsdiff.pl.gene_pair(large, first, second, show=False)) == 2
    for gene in (None, first):
        sccountsdiff.pl.uncertainty(large, gene, basis="X_first", show=False)


def test_genes_that_are_lacking_and_modalities_are_read_in_memory(trained, query, dense):
    few = in_dask(query[:, 3:].copy(), sparse=True)
    CountsDiffImputer.prepare_query_anndata(few, trained)
    assert np.isnan(dense(few.X)[:, :3]).all()
    np.testing.assert_array_equal(dense(few.X)[:, 3:], query.X.toarray()[:, 3:])
    mdata = mudata.MuData({"rna": in_dask(query, sparse=True), "prot": ad.AnnData(np.ones((query.n_obs, 2)))})
    mdata["prot"].obs_names, mdata["prot"].var_names = query.obs_names, ["p0", "p1"]
    mdata.update()
    CountsDiffImputer.setup_mudata(mdata, modalities={"layer": ["rna", "prot"]})
    assert len(CountsDiffImputer(mdata, n_hidden=8, n_layers=1).gene_names) == query.n_vars + 2
