import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from scipy import sparse

from sccountsdiff.benchmark.preprocessing import encode_labels, filter_genes, split_cells, split_test, top_genes


@pytest.fixture(scope="module")
def cells():
    rng = np.random.default_rng(0)
    counts = rng.negative_binomial(2, 2 / (2 + rng.gamma(1, 2, 50)), (300, 50)).astype(np.float32)
    obs = pd.DataFrame({"type": rng.choice(["a", "b", "rare"], 300, p=[0.6, 0.37, 0.03])}, index=map(str, range(300)))
    return AnnData(sparse.csr_matrix(counts), obs=obs, var=pd.DataFrame(index=[f"g{i}" for i in range(50)]))


def test_gene_filter(cells):
    n_cells = (cells.X.toarray() > 0).sum(axis=0)
    np.testing.assert_array_equal(filter_genes(cells, 150).var_names, cells.var_names[n_cells >= 150])
    dense = AnnData(np.zeros(cells.shape), layers={"counts": cells.X.toarray()}, var=cells.var)
    np.testing.assert_array_equal(
        filter_genes(dense, 150, layer="counts").var_names, filter_genes(cells, 150).var_names
    )
    with pytest.raises(ValueError, match="min_cells=301"):
        filter_genes(cells, 301)


def test_top_genes_by_moments(cells):
    x = cells.X.toarray().astype(np.float64)
    for by, score in (("cv", x.std(axis=0) / np.maximum(x.mean(axis=0), 1e-9)), ("variance", x.var(axis=0))):
        chosen = top_genes(cells, 7, by=by)
        assert set(chosen.var_names) == set(cells.var_names[np.argsort(score)[-7:]])
        assert list(chosen.var_names) == [g for g in cells.var_names if g in set(chosen.var_names)], "order is kept"
    assert top_genes(cells, 500).n_vars == 50


def test_top_genes_by_pearson_residuals():
    """A gene on in one type only is chosen before others with as much Poisson noise around the depth of the cell."""
    rng = np.random.default_rng(1)
    mean = np.full((200, 10), 5.0)
    mean[:100, 3], mean[100:, 3] = 0.2, 9.8
    cells = AnnData(rng.poisson(mean * rng.gamma(5, 0.2, (200, 1))).astype(np.float32))
    assert top_genes(cells, 1, by="pearson_residuals").var_names.tolist() == ["3"]
    assert "hvg" not in cells.uns and cells.var.columns.empty


def test_silent_genes_come_last():
    cells = AnnData(np.array([[0.0, 1, 3], [0, 1, 5]]))
    assert "0" not in top_genes(cells, 2, by="cv").var_names
    with pytest.raises(ValueError, match="`by` must be"):
        top_genes(cells, 2, by="mean")
    with pytest.raises(ValueError, match="`n` must be"):
        top_genes(cells, 0)
    with pytest.raises(KeyError, match="layer"):
        top_genes(cells, 1, layer="raw")


@pytest.mark.parametrize("stratify", [None, "type"])
def test_a_split_is_a_partition(cells, stratify):
    parts = split_cells(cells, seed=5, stratify=stratify)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(300))
    sizes = [len(p) for p in parts]
    assert np.abs(np.array(sizes) - [240, 30, 30]).max() <= (0 if stratify is None else 3)
    for part, again in zip(parts, split_cells(cells, seed=5, stratify=stratify), strict=True):
        np.testing.assert_array_equal(part, again)
    assert any(
        not np.array_equal(p, q) for p, q in zip(parts, split_cells(cells, seed=6, stratify=stratify), strict=True)
    )


def test_strata_keep_their_shares(cells):
    parts = split_cells(cells, (0.5, 0.5), stratify="type")
    for label in ("a", "b", "rare"):
        counts = [(cells.obs["type"].iloc[p] == label).sum() for p in parts]
        assert abs(counts[0] - counts[1]) <= 1


def test_rare_labels_reach_every_part_as_often_as_they_should():
    labels = np.repeat(np.arange(2000), 2)  # two cells of each label: a tenth of each part must not be starved
    train, validation, test = split_cells(4000, stratify=labels)
    for part, share in ((train, 0.8), (validation, 0.1), (test, 0.1)):
        assert abs(len(part) - 4000 * share) < 5 * np.sqrt(4000 * share * (1 - share))


def test_split_arguments(cells):
    for kwargs in ({"shares": (0.5, 0.4)}, {"shares": (1.5, -0.5)}, {"stratify": ["a"]}):
        with pytest.raises(ValueError, match=next(iter(kwargs))):
            split_cells(cells, **kwargs)
    for given in (cells, 300):
        with pytest.raises(KeyError, match="stratify"):
            split_cells(given, stratify="donor")


def test_test_cells_are_those_that_may_be(cells):
    """As many as without a choice; if all may be, the same as those of a plain split."""
    cells.obs["new"] = np.arange(cells.n_obs) >= 200
    train, test = split_test(cells, 0.2, seed=3, testable="new")
    assert len(test) == 60 and test.min() >= 200
    np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(300))
    assert not np.array_equal(test, split_test(cells, 0.2, seed=4, testable="new")[1])
    cells.obs["any"] = True
    for parts in (split_test(cells, 0.2, seed=3), split_test(cells, 0.2, seed=3, testable="any")):
        for part, same in zip(parts, split_cells(cells, (0.8, 0.2), seed=3), strict=True):
            np.testing.assert_array_equal(part, same)
    for column in (False, np.arange(cells.n_obs) < 50):
        cells.obs["few"] = column
        with pytest.raises(ValueError, match="20% are to be test cells, but only (0|50) are 'few'"):
            split_test(cells, 0.2, testable="few")


def test_codes_are_shared_by_all_parts(cells):
    coded = encode_labels(cells, "type")
    names = coded.uns["label_codes"]["type"]
    for part in split_cells(coded):
        subset = coded[part].copy()
        assert (names[subset.obs["type_code"]] == subset.obs["type"]).all()
    assert "type_code" not in cells.obs
    with pytest.raises(KeyError, match="donor"):
        encode_labels(cells, ["donor"])
