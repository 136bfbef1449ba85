"""Between set-up and imputation of the same data nothing is read in full but what is worked on."""

from __future__ import annotations

from collections import Counter

import anndata as ad
import h5py
import numpy as np
import pytest
import scipy.sparse as sp

from sccountsdiff import CountsDiffImputer
from sccountsdiff.data.summary import N_SAMPLED_LINES

N_CELLS = 200
QUICK = {"n_samples": 2, "n_steps": 2, "seed": 0, "batch_size": 50, "silent": True, "key_added": None}


class Reads:
    """How often each row of each matrix was read since one last asked."""

    def __init__(self):
        self.counters = {}

    def add(self, name, rows, n_rows):
        positions = np.atleast_1d(np.arange(n_rows)[rows])
        self.counters.setdefault(name, Counter()).update(positions.tolist())

    def take(self, name):
        counter = self.counters.pop(name, Counter())
        return np.array([counter[row] for row in range(N_CELLS)])


def rows_of(key):
    return key[0] if isinstance(key, tuple) else key


@pytest.fixture
def reads(monkeypatch):
    """Notes which rows are read of matrices in a file, and of CSR matrices in memory that are ``Watched``."""
    noted, from_file = Reads(), h5py.Dataset.__getitem__

    def noting(dataset, key, *args, **kwargs):
        if len(dataset.shape) == 2:
            noted.add(dataset.name, rows_of(key), dataset.shape[0])
        return from_file(dataset, key, *args, **kwargs)

    monkeypatch.setattr(h5py.Dataset, "__getitem__", noting)
    monkeypatch.setattr(Watched, "noted", noted)
    return noted


class Watched(sp.csr_matrix):
    """Counts in memory that tell which of their rows are read."""

    noted = None

    def __getitem__(self, key):
        if self.noted is not None and self.shape[0] == N_CELLS:
            self.noted.add("memory", rows_of(key), self.shape[0])
        return super().__getitem__(key)


def in_file(adata, tmp_path):
    adata.X = adata.X.toarray()
    adata.write_h5ad(tmp_path / "data.h5ad")
    return ad.read_h5ad(tmp_path / "data.h5ad", backed="r"), "/X"


def in_memory(adata, tmp_path):
    adata.X = Watched(adata.X)
    assert type(adata.X) is Watched
    return adata, "memory"


@pytest.fixture(params=[in_file, in_memory], ids=["file", "memory"])
def stored(request, simulate, tmp_path):
    """Data, and under which name reads of its counts are noted."""
    adata, name = request.param(simulate(N_CELLS).adata, tmp_path)
    yield adata, name
    if adata.isbacked:
        adata.file.close()


def make_model(adata, n_factors=0):
    model = CountsDiffImputer(adata, n_hidden=4, n_layers=1, n_factors=n_factors)
    model.is_trained_ = True  # what it has learned does not matter here
    return model


def assert_fingerprint(times):
    """Only the lines of a fingerprint were read, and once."""
    assert (times > 0).sum() <= N_SAMPLED_LINES and times.max() <= 1


def test_set_up_reads_each_row_once(stored, reads):
    adata, name = stored
    CountsDiffImputer.setup_anndata(adata)
    times = reads.take(name)
    assert times.min() == 1, "every entry is checked"
    assert_fingerprint(times - 1)


def test_a_second_scan_would_be_noticed(stored, reads):
    """What the other tests count is what is read."""
    adata, name = stored
    CountsDiffImputer.setup_anndata(adata)
    CountsDiffImputer.setup_anndata(adata)
    assert reads.take(name).min() == 2


def test_making_a_model_reads_a_fingerprint(stored, reads):
    adata, name = stored
    CountsDiffImputer.setup_anndata(adata)
    reads.take(name)
    make_model(adata)
    assert_fingerprint(reads.take(name))


def test_factors_are_fitted_to_a_sample_of_the_cells(stored, reads):
    adata, name = stored
    CountsDiffImputer.setup_anndata(adata)
    reads.take(name)
    make_model(adata, n_factors=2)
    times = reads.take(name)
    assert times.min() == 1, "so few cells are all in the sample"
    assert_fingerprint(times - 1)


@pytest.mark.parametrize("sites", ["default", "named"])
def test_imputation_reads_each_row_once(stored, reads, sites):
    adata, name = stored
    CountsDiffImputer.setup_anndata(adata)
    model = make_model(adata)
    reads.take(name)
    named = None if sites == "default" else np.random.default_rng(0).random(adata.shape) < 0.3
    model.impute(sites=named, **QUICK)
    times = reads.take(name)
    assert times.min() == 1, "the work itself"
    assert_fingerprint(times - 1)


def test_some_cells_are_read_alone(stored, reads):
    adata, name = stored
    CountsDiffImputer.setup_anndata(adata)
    model = make_model(adata)
    reads.take(name)
    model.impute(indices=[3, 77, 78], **QUICK)
    times = reads.take(name)
    assert (times[[3, 77, 78]] >= 1).all()
    times[[3, 77, 78]] -= 1
    assert_fingerprint(times)


@pytest.mark.parametrize(
    "method",
    [
        lambda model: model.denoise(batch_size=50, silent=True),
        lambda model: model.log_likelihood(n_times=1, batch_size=50, silent=True),
        lambda model: model.get_normalized_expression(n_folds=2, batch_size=50, silent=True),
        lambda model: model.posterior_predictive_sample(n_folds=2, n_steps=1, batch_size=50, silent=True),
    ],
    ids=["denoise", "log_likelihood", "get_normalized_expression", "posterior_predictive_sample"],
)
def test_other_methods_read_each_row_once(stored, reads, method):
    adata, name = stored
    CountsDiffImputer.setup_anndata(adata)
    model = make_model(adata)
    reads.take(name)
    method(model)
    times = reads.take(name)
    assert times.min() == 1
    assert_fingerprint(times - 1)


def test_a_mask_is_read_as_often_as_the_counts(simulate, reads):
    adata = simulate(N_CELLS).adata
    adata.layers["observed"] = Watched(np.random.default_rng(0).random(adata.shape) < 0.8)
    CountsDiffImputer.setup_anndata(adata, mask_layer="observed")
    times = reads.take("memory")
    assert times.min() == 1
    assert_fingerprint(times - 1)
    model = make_model(adata)
    times = reads.take("memory")
    assert times.min() == 1, "depths are found in cells that lack something"
    assert_fingerprint(times - 1)
    model.impute(**QUICK)
    times = reads.take("memory")
    assert times.min() == 1
    assert_fingerprint(times - 1)


def test_counts_that_were_changed_are_read_again(simulate, reads, tmp_path):
    adata, name = in_memory(simulate(N_CELLS).adata, tmp_path)
    CountsDiffImputer.setup_anndata(adata)
    model = make_model(adata)
    adata.X = Watched(adata.X * 2)
    reads.take(name)
    model.impute(**QUICK)
    assert reads.take(name).min() == 3, "checked, searched for missing counts, and worked on"
    adata.X = Watched(adata.X.log1p())
    with pytest.raises(ValueError, match="looks log-normalised"):
        model.impute(**QUICK)


def test_one_entry_that_was_changed_is_noticed_where_it_is_read(simulate):
    adata = simulate(N_CELLS).adata
    CountsDiffImputer.setup_anndata(adata)
    model = make_model(adata)
    row = 101  # of which the fingerprint knows nothing
    adata.X[row, int(adata.X[row].toarray().argmax())] = 0.5
    model.impute(indices=[row - 1], **QUICK)
    with pytest.raises(ValueError, match=rf"the first is 0\.5 in cell 'cell{row}' \(row {row}\)"):
        model.impute(**QUICK)
