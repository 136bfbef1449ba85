"""Cells as methods see them, and the checks of what users give."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from anndata import AnnData
from scipy import sparse

from sccountsdiff.compat import layer_names


@dataclass(frozen=True, eq=False)
class Cells:
    """Cells as a method gets to see them.

    Attributes
    ----------
    counts
        Counts (cells, genes), 0 where they are not observed.
    observed
        Boolean (cells, genes).
    covariates
        A row for each cell; no columns for a method that does not use covariates.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> len(Cells(np.zeros((4, 2)), np.ones((4, 2), dtype=bool), pd.DataFrame(index=range(4))))
    4
    """

    counts: np.ndarray
    observed: np.ndarray
    covariates: pd.DataFrame

    def __len__(self) -> int:
        return len(self.counts)

    def __getitem__(self, rows: np.ndarray | slice) -> Cells:
        return Cells(self.counts[rows], self.observed[rows], self.covariates.iloc[rows])

    def gene_means(self) -> np.ndarray:
        """Mean of each gene over the cells in which it is observed, (genes,); 0 if there are none.

        Examples
        --------
        >>> import numpy as np
        >>> import pandas as pd
        >>> observed = np.array([[True, True], [False, True]])
        >>> Cells(np.array([[3.0, 1.0], [0.0, 2.0]]), observed, pd.DataFrame(index=range(2))).gene_means()
        array([3. , 1.5])
        """
        return self.counts.sum(axis=0, dtype=np.float64) / self.observed.sum(axis=0).clip(1)


def stack(first: Cells, second: Cells) -> Cells:
    """All cells of both, in this order.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> cells = Cells(np.zeros((4, 2)), np.ones((4, 2), dtype=bool), pd.DataFrame(index=range(4)))
    >>> len(stack(cells, cells[:1]))
    5
    """
    join = lambda name: np.concatenate([getattr(first, name), getattr(second, name)])
    return Cells(join("counts"), join("observed"), pd.concat([first.covariates, second.covariates]))


def read_counts(adata: AnnData, layer: str | None, argument: str, hidden: np.ndarray | None = None) -> np.ndarray:
    """Checked dense counts in a float type that holds them exactly, with the hidden ones set to 0.

    Examples
    --------
    >>> import numpy as np
    >>> from anndata import AnnData
    >>> read_counts(AnnData(np.array([[3, 5]])), None, "test", hidden=np.array([[True, False]]))
    array([[0., 5.]])
    """
    if 0 in adata.shape:
        raise ValueError(f"{argument} is empty: it has {adata.n_obs} cells and {adata.n_vars} genes.")
    if layer is not None and layer not in adata.layers:
        raise KeyError(f"{argument} has no layer {layer!r}; found {layer_names(adata)}.")
    counts = adata.X if layer is None else adata.layers[layer]
    if counts is None:
        raise ValueError(f"{argument}.X is empty; name the layer that holds the counts with layer=.")
    is_sparse = sparse.issparse(counts)
    counts = counts.toarray() if is_sparse else np.asarray(counts)
    # What is the user's stays as it is; what was made here is not made twice.
    counts = counts.astype(np.result_type(counts.dtype, np.float32), order="C", copy=not is_sparse)
    if hidden is not None:
        counts[hidden] = 0
    if not np.isfinite(counts).all():
        raise ValueError(
            f"{argument} has {np.sum(~np.isfinite(counts))} NaN or infinite entries among the observed ones; "
            "give complete counts and name the entries to fill in with sites."
        )
    if counts.min() < 0:
        raise ValueError(f"{argument} has negative entries (lowest {counts.min():g}); raw counts are needed.")
    return counts


def boolean_matrix(matrix: np.ndarray, shape: tuple[int, int], argument: str) -> np.ndarray:
    """A dense boolean matrix; an error if it is not boolean or has another shape.

    Examples
    --------
    >>> import numpy as np
    >>> boolean_matrix(np.zeros((1, 2)), (1, 2), "sites")
    Traceback (most recent call last):
        ...
    ValueError: sites must be a boolean matrix, found dtype float64.
    """
    matrix = matrix.toarray() if sparse.issparse(matrix) else np.asarray(matrix)
    if matrix.dtype != bool:
        raise ValueError(f"{argument} must be a boolean matrix, found dtype {matrix.dtype}.")
    if matrix.shape != shape:
        raise ValueError(f"{argument} must have the shape of the cells, {shape}, found {matrix.shape}.")
    return matrix
