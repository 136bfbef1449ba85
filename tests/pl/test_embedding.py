import numpy as np
import pytest
import scipy.sparse as sp
from anndata import AnnData

from sccountsdiff import pl

SD = np.array([[0.0, 4.0], [0.0, 0.0], [6.0, 1.0]])
PLACES = np.array([[0.0, 1.0, 9.0], [2.0, 3.0, 9.0], [4.0, 5.0, 9.0]])


@pytest.fixture(params=[np.asarray, sp.csr_matrix])
def adata(request):
    adata = AnnData(np.zeros((3, 2)), obsm={"X_pca": PLACES}, layers={"imputed_sd": request.param(SD)})
    adata.var_names = ["x", "y"]
    return adata


@pytest.mark.parametrize(("gene", "expected"), [(None, [2, 0, 3.5]), ("x", [0, 0, 6]), ("y", [4, 0, 1])])
def test_cells_are_coloured_by_their_spread(adata, ax, gene, expected):
    pl.uncertainty(adata, gene, basis="X_pca", ax=ax)
    points = ax.collections[0]
    drawn = {
        tuple(place): value for place, value in zip(points.get_offsets().tolist(), points.get_array(), strict=True)
    }
    assert drawn == dict(zip(map(tuple, PLACES[:, :2].tolist()), expected, strict=True))
    assert (np.diff(points.get_array()) >= 0).all(), "the most uncertain ones are on top"
    assert ax.get_title() == (gene or "mean over genes")
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("pca 1", "pca 2")


def test_what_is_lacking_is_named(adata):
    with pytest.raises(KeyError, match="basis='X_umap' is not in adata.obsm, which has X_pca"):
        pl.uncertainty(adata)
    with pytest.raises(KeyError, match="Gene 'z' is not"):
        pl.uncertainty(adata, "z", basis="X_pca")
    with pytest.raises(KeyError, match="'other_sd' is not in adata.layers"):
        pl.uncertainty(adata, key="other", basis="X_pca")
