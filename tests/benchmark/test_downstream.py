import numpy as np
import pytest
from scipy import sparse

from sccountsdiff.benchmark.downstream import (
    CellTypeClassifier,
    accuracy,
    cluster_ari,
    leiden_clusters,
    log_normalised,
    macro_f1,
    marker_recovery,
    markers_of_types,
)

TYPES = np.array(["a", "b", "c"])


@pytest.fixture(scope="module")
def cells():
    """Three types, each with five genes of its own out of 30."""
    rng = np.random.default_rng(0)
    kind = rng.integers(3, size=240)
    mean = np.ones((3, 30))
    for k in range(3):
        mean[k, 5 * k : 5 * k + 5] = 12
    return rng.poisson(mean[kind] * rng.gamma(5, 0.2, (240, 1))), TYPES[kind]


def shuffled(counts):
    """Each gene on its own: nothing is left of the types."""
    return np.random.default_rng(1).permuted(counts, axis=0)


def test_classifier_is_right_about_the_truth_and_at_chance_on_noise(cells):
    pytest.importorskip("xgboost")
    counts, labels = cells
    classifier = CellTypeClassifier(n_trees=20).fit(sparse.csr_matrix(counts[:160]), labels[:160])
    test, truth = counts[160:], labels[160:]
    assert accuracy(truth, classifier.predict(test)) > 0.97
    assert macro_f1(truth, classifier.predict(test)) > 0.97
    noise = classifier.predict(shuffled(test))
    assert abs(accuracy(truth, noise) - 1 / 3) < 3 * np.sqrt(2 / 9 / 80)
    assert macro_f1(truth, noise) < 0.6
    np.testing.assert_array_equal(classifier.predict(5 * test), classifier.predict(test), "depth does not matter")


def test_a_single_type_needs_no_trees(cells):
    pytest.importorskip("xgboost")
    classifier = CellTypeClassifier().fit(cells[0][:5], ["a"] * 5)
    assert set(classifier.predict(cells[0][5:8])) == {"a"}
    with pytest.raises(ValueError, match="one entry for each of 5"):
        CellTypeClassifier().fit(cells[0][:5], ["a"] * 4)


def test_rare_types_count_as_much_in_macro_f1():
    labels = np.array(["common"] * 98 + ["rare"] * 2)
    predicted = np.full(100, "common")
    assert accuracy(labels, predicted) == 0.98
    assert macro_f1(labels, predicted) == pytest.approx((2 * 0.98 / 1.98) / 2)


def test_clusters_are_the_types_and_noise_has_none(cells):
    pytest.importorskip("leidenalg")
    counts, labels = cells
    clusters = leiden_clusters(counts, resolution=0.3)
    assert cluster_ari(labels, clusters) > 0.9
    assert abs(cluster_ari(labels, leiden_clusters(shuffled(counts), resolution=0.3))) < 0.1
    np.testing.assert_array_equal(clusters, leiden_clusters(counts, resolution=0.3))


def test_markers(cells):
    counts, labels = cells
    markers = markers_of_types(counts, labels, n_markers=5)
    assert markers == {name: set(range(5 * k, 5 * k + 5)) for k, name in enumerate(TYPES)}
    assert marker_recovery(counts, counts, labels) == 1
    assert marker_recovery(counts, np.roll(counts, 15, axis=1), labels, n_markers=5) == 0
    with pytest.raises(ValueError, match="n_markers"):
        markers_of_types(counts, labels, n_markers=0)


def test_types_without_cells_to_compare(cells):
    counts = cells[0][:6]
    assert list(markers_of_types(counts, ["a"] * 5 + ["b"], n_markers=3)) == ["a"]
    assert np.isnan(marker_recovery(counts, counts, np.array(["a"] * 6)))


def test_normalisation_of_sparse_and_dense_and_empty_cells(cells):
    counts = cells[0][:4].copy()
    counts[1] = 0
    dense = log_normalised(counts)
    np.testing.assert_allclose(log_normalised(sparse.csr_matrix(counts)).toarray(), dense, rtol=1e-5)
    np.testing.assert_allclose(np.expm1(dense).sum(axis=1), [1e4, 0, 1e4, 1e4], rtol=1e-4)
