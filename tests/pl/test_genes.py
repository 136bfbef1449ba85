import matplotlib.pyplot as plt
import numpy as np
import pytest
import scipy.sparse as sp
from anndata import AnnData

from sccountsdiff import pl

COUNTS = np.array([[0, 5], [0, 5], [3, 0], [2, 2], [np.nan, 4]])
IMPUTED = np.array([[1.5, 5], [0.0, 5], [3, 1.0], [2, 2], [6.0, 4]])
SD = np.array([[0.5, 0], [0.0, 0], [0, 2.0], [0, 0], [1.0, 0]])


def make(convert):
    adata = AnnData(convert(COUNTS))
    adata.var_names = ["x", "y"]
    adata.layers["imputed"], adata.layers["imputed_sd"] = convert(IMPUTED), convert(SD)
    return adata


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_matrix])
def test_before_and_after(convert):
    before, after = pl.gene_pair(make(convert), "x", "y", show=False)
    points = before.collections[0]
    assert {tuple(point) for point in points.get_offsets().tolist()} == {(0, 5), (3, 0), (2, 2)}, "NaN is not drawn"
    sizes = dict(zip(map(tuple, points.get_offsets().tolist()), points.get_sizes(), strict=True))
    assert sizes[0, 5] == pytest.approx(np.sqrt(2) * sizes[2, 2]), "two cells are more than one"

    observed = after.collections[0].get_offsets().tolist()
    assert observed == [[0, 5], [2, 2]], "a zero that was filled in with zeros only looks like an observed one"
    line, _, (x_bars, y_bars) = after.containers[0].lines
    np.testing.assert_array_equal(np.column_stack(line.get_data()), [[1.5, 5], [3, 1], [6, 4]])
    assert [segment[:, 0].tolist() for segment in x_bars.get_segments()] == [[1, 2], [3, 3], [5, 7]]
    assert y_bars.get_segments()[1][:, 1].tolist() == [0, 3], "bars end at zero: there are no negative counts"
    assert before.get_xlim() == after.get_xlim() and before.get_ylim() == after.get_ylim()
    assert [panel.get_title() for panel in (before, after)] == ["Before", "After"]
    assert (before.get_xlabel(), before.get_ylabel()) == ("x", "y")


def test_other_layers_and_axes():
    adata = make(np.asarray)
    adata.layers["counts"] = adata.X + 1
    adata.layers["again"], adata.layers["again_sd"] = adata.layers["imputed"] + 1, adata.layers["imputed_sd"]
    axes = plt.subplots(1, 2)[1]
    result = pl.gene_pair(adata, "x", "y", key="again", layer="counts", ax=axes)
    assert result[0] is axes[0] and result[1] is axes[1]
    assert [3, 3] in axes[0].collections[0].get_offsets().tolist()
    assert [3, 3] in axes[1].collections[0].get_offsets().tolist()


@pytest.mark.parametrize("note", [{"layer": "counts"}, {"layer": None}, {}, None])
def test_before_is_what_was_imputed(note):
    adata = make(np.asarray)
    adata.layers["counts"], adata.X = adata.X, np.log1p(adata.X)
    adata.uns["sccountsdiff"] = {} if note is None else {"imputed": note}
    counts, logarithms = COUNTS[3].tolist(), np.log1p(COUNTS[3]).tolist()
    is_noted = bool(note and note.get("layer"))
    before, after = pl.gene_pair(adata, "x", "y", show=False)
    assert (counts in before.collections[0].get_offsets().tolist()) == is_noted
    assert (logarithms in before.collections[0].get_offsets().tolist()) == (not is_noted)
    assert (counts in after.collections[0].get_offsets().tolist()) == is_noted, "an observed cell is not filled in"

    given = adata.layers["others"] = adata.layers["counts"] + 1
    before, _ = pl.gene_pair(adata, "x", "y", layer="others", show=False)
    assert given[3].tolist() in before.collections[0].get_offsets().tolist(), "what is asked for comes first"


def test_before_is_what_the_model_has_read(simulate, train):
    adata = simulate(20).adata
    adata.layers["counts"], adata.X = adata.X, adata.X.log1p()
    train(adata).impute(n_samples=2, silent=True)
    before, after = pl.gene_pair(adata, "gene0", "gene1", show=False)
    counts = {tuple(pair) for pair in adata.layers["counts"][:, :2].toarray().tolist()}
    assert set(map(tuple, before.collections[0].get_offsets().tolist())) == counts
    observed = set(map(tuple, after.collections[0].get_offsets().tolist()))
    assert observed >= {pair for pair in counts if min(pair) > 0}, "only zeros were filled in"


def test_what_is_lacking_is_named():
    adata = make(np.asarray)
    with pytest.raises(KeyError, match="Gene 'z' is not"):
        pl.gene_pair(adata, "x", "z")
    with pytest.raises(KeyError, match="'counts' is not in adata.layers"):
        pl.gene_pair(adata, "x", "y", layer="counts")
    del adata.layers["imputed_sd"]
    with pytest.raises(KeyError, match="unless `n_samples` is 1"):
        pl.gene_pair(adata, "x", "y")


def test_masked_counts_are_not_drawn_before():
    adata = make(np.asarray)
    adata.X = np.where(np.isnan(COUNTS), 9999, COUNTS)
    adata.layers["seen"] = ~np.isnan(COUNTS)
    adata.uns["sccountsdiff"] = {"imputed": {"mask_layer": "seen"}}
    before, after = pl.gene_pair(adata, "x", "y", show=False)
    assert {tuple(point) for point in before.collections[0].get_offsets().tolist()} == {(0, 5), (3, 0), (2, 2)}
    assert before.get_xlim()[1] < 100
    assert [6, 4] in np.column_stack(after.containers[0].lines[0].get_data()).tolist(), "drawn as filled in"
