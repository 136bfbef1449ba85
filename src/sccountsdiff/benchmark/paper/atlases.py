"""The two atlases of the paper: what their files must hold, and how they are read."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
from anndata import AnnData
from anndata.io import read_elem, sparse_dataset
from anndata.utils import make_index_unique
from scipy import sparse

from sccountsdiff.benchmark.datasets import Dataset
from sccountsdiff.benchmark.matrices import are_counts
from sccountsdiff.benchmark.paper.chunks import read_chosen

FEWEST_CELLS = 500
"""A share of a file is never fewer cells than this, unless the file has fewer."""


@dataclass(frozen=True)
class Atlas:
    """A data set of the paper, and the settings that go with it.

    Attributes
    ----------
    name
        Name in tables.
    address
        Where to get the file.
    covariates
        Columns of ``obs`` that the paper conditions on, all taken as categories; the first is the type of the cell.
    n_genes
        Genes kept, by coefficient of variation.
    common_share
        Share of the cells in which a gene must be found to be kept.
    n_hidden, n_heads, n_steps, ema_decay, weight_decay
        Network and training of CountsDiff.
    attrition, guidance
        Sampling of CountsDiff.
    scidpms_epochs
        Epochs of scIDPMs.
    bootstrap_cells
        Cells in each bootstrap resample.
    n_cells
        Cells of the whole atlas.

    Examples
    --------
    >>> FETUS.covariates
    ('cell_type', 'disease', 'sex', 'batch', 'development_day')
    """

    name: str
    address: str
    covariates: tuple[str, ...]
    n_genes: int
    common_share: float
    n_hidden: int
    n_heads: int
    n_steps: int
    ema_decay: float
    weight_decay: float
    attrition: float
    guidance: float
    scidpms_epochs: int
    bootstrap_cells: int
    n_cells: int

    def load(
        self,
        path: str | Path,
        *,
        columns: Mapping[str, str | None] | None = None,
        gene_column: str | None = None,
        share: float = 1.0,
        n_genes: int | None = None,
        common_share: float = 0.0,
        cache: str | Path | None = None,
    ) -> Dataset:
        """Read the atlas from its ``.h5ad`` file.

        Counts are taken from the first of ``X``, ``layers["counts"]`` and ``raw/X`` that holds whole numbers. Covariates
        may be in upper or lower case; all are categories, and a missing value is the category ``unknown``.

        Parameters
        ----------
        path
            The file.
        columns
            For covariates that the file has under another name: that name, or ``None`` to do without the covariate.
        gene_column
            Column of ``var`` with the names of genes; its index by default.
        share
            Share of the cells to read, at random.
        n_genes
            Keep only so many genes, those with the largest coefficient of variation. The file is then read in chunks of
            cells, twice, and never held in memory as a whole. Default: all genes.
        common_share
            Of genes that are found in this share of the cells that are read, and in one at least.
        cache
            Folder for the counts of these genes, which are then memory-mapped, and found again by the next call. Default:
            they are kept in memory.

        Returns
        -------
        The data set, with the type of each cell as its label.

        Examples
        --------
        >>> HEART.load("heart.h5ad", share=2)
        Traceback (most recent call last):
        ...
        ValueError: share must be above 0 and at most 1, found 2.
        """
        if not 0 < share <= 1:
            raise ValueError(f"share must be above 0 and at most 1, found {share}.")
        path = self._path(path)
        with h5py.File(path) as file:
            obs, counts, genes_of_file = self._parts(file, columns, gene_column)
            n_cells = max(round(share * len(obs)), min(FEWEST_CELLS, len(obs)))
            rows = np.sort(np.random.default_rng(0).permutation(len(obs))[:n_cells])
            names = make_index_unique(genes_of_file)
            if n_genes is None:
                values = sparse.csr_matrix(counts[:] if n_cells == len(obs) else counts[rows], dtype=np.float32)
            else:
                state = path.stat()
                source = [str(path.resolve()), state.st_size, state.st_mtime_ns]
                min_cells = max(round(common_share * n_cells), 1)
                values, genes = read_chosen(counts, rows, n_genes, min_cells, cache and Path(cache), source)
                names = names[genes]
        adata = AnnData(values, obs=obs.iloc[rows], var=pd.DataFrame(index=names))
        return Dataset(self.name, adata, covariates=tuple(obs.columns), label=self.covariates[0])

    def describe(
        self, path: str | Path, *, columns: Mapping[str, str | None] | None = None, gene_column: str | None = None
    ) -> str:
        """Check that the file can be read by :meth:`load`, and say what is in it; counts are looked at and not read.

        Parameters
        ----------
        path, columns, gene_column
            As in :meth:`load`.

        Examples
        --------
        >>> HEART.describe("heart.csv")
        Traceback (most recent call last):
        ...
        ValueError: The heart atlas must be an .h5ad file, found 'heart.csv'.
        """
        with h5py.File(self._path(path)) as file:
            obs, _, genes = self._parts(file, columns, gene_column)
        return f"{len(obs):,} cells, {len(genes):,} genes, covariates {', '.join(obs.columns)}"

    def _path(self, path: str | Path) -> Path:
        path = Path(path)
        if path.suffix != ".h5ad":
            raise ValueError(f"The {self.name} atlas must be an .h5ad file, found {str(path)!r}.")
        if not path.is_file():
            raise FileNotFoundError(f"There is no file {str(path)!r}; get the {self.name} atlas from {self.address}.")
        return path

    def _parts(
        self, file: h5py.File, columns: Mapping[str, str | None] | None, gene_column: str | None
    ) -> tuple[pd.DataFrame, Any, pd.Index]:
        """Covariates, counts that are not yet read, and names of genes."""
        obs = self._covariates(read_elem(file["obs"]), columns or {})
        counts, genes = self._find_counts(file)
        var = read_elem(genes)
        if gene_column is None:
            return obs, counts, var.index.astype(str)
        if gene_column not in var:
            raise KeyError(f"gene_column={gene_column!r} is not a column of var; found {list(var.columns)}.")
        return obs, counts, pd.Index(var[gene_column].astype(str))

    def _covariates(self, obs: pd.DataFrame, columns: Mapping[str, str | None]) -> pd.DataFrame:
        """The paper's covariates under the paper's names, as text."""
        if unknown := set(columns) - set(self.covariates):
            raise KeyError(f"columns: {sorted(unknown)} are no covariates of the {self.name} atlas {self.covariates}.")
        if columns.get(self.covariates[0], "") is None:
            raise ValueError(f"columns: {self.covariates[0]!r} is the type of the cell and cannot be left out.")
        in_lower_case = {str(name).lower(): name for name in obs.columns}
        names = {covariate: columns.get(covariate, covariate) for covariate in self.covariates}
        names = {covariate: name for covariate, name in names.items() if name is not None}
        found = {c: obs.get(name, obs.get(in_lower_case.get(name.lower()))) for c, name in names.items()}
        if missing := [covariate for covariate, column in found.items() if column is None]:
            raise KeyError(
                f"The {self.name} atlas must have the columns {missing} in obs; found {list(obs.columns)}. Say which columns "
                f"to take with columns={{{missing[0]!r}: ...}}, None for none, or get the file from {self.address}."
            )
        texts = {c: column.astype(object).where(column.notna(), "unknown").astype(str) for c, column in found.items()}
        return pd.DataFrame(texts, index=obs.index.astype(str))

    def _find_counts(self, file: h5py.File) -> tuple[object, h5py.Group]:
        """The matrix of the file that holds whole numbers, not yet read, and its table of genes."""
        places = {"X": "var", "layers/counts": "var", "raw/X": "raw/var"}
        for place, var in places.items():
            if place not in file:
                continue
            matrix = sparse_dataset(file[place]) if isinstance(file[place], h5py.Group) else file[place]
            if are_counts(matrix[:1000]):
                return matrix, file[var]
        raise ValueError(
            f"The {self.name} atlas must have raw counts in one of {', '.join(places)}, found no whole numbers there; get the "
            f"file from {self.address}."
        )


def _described(name: str) -> Atlas:
    """The atlas as the file next to this module has it."""
    atlas = tomllib.loads(files("sccountsdiff.benchmark.paper").joinpath("atlases.toml").read_text())[name]
    common_share = atlas.pop("common_cells") / atlas["n_cells"]
    return Atlas(name=name, covariates=tuple(atlas.pop("covariates")), common_share=common_share, **atlas)


FETUS = _described("fetus")
"""Human fetal cell atlas (Cao et al. 2020), 4 million cells of 15 organs."""

HEART = _described("heart")
"""Heart cell atlas (Litviňuková et al. 2020), half a million cells of the adult heart."""


def load_fetus(path: str | Path, **options: Any) -> Dataset:
    """The human fetal cell atlas (Cao et al. 2020) from the ``.h5ad`` file of its CELLxGENE collection.

    Covariates are ``cell_type``, ``disease``, ``sex``, ``batch`` and ``development_day``. The index of the file's ``var``
    has Ensembl identifiers, its column ``feature_name`` gene symbols, which scGPT's weights go by.

    Parameters
    ----------
    path
        The file.
    **options
        ``columns``, ``gene_column``, ``share``, ``n_genes``, ``common_share`` and ``cache``, see :meth:`Atlas.load`.

    Returns
    -------
    The data set, with the type of each cell as its label.

    Examples
    --------
    >>> load_fetus("nowhere.h5ad")
    Traceback (most recent call last):
    ...
    FileNotFoundError: There is no file 'nowhere.h5ad'; get the fetus atlas from \
https://cellxgene.cziscience.com/collections/c114c20f-1ef4-49a5-9c2e-d965787fb90c.
    """
    return FETUS.load(path, **options)


def load_heart(path: str | Path, **options: Any) -> Dataset:
    """The heart cell atlas (Litviňuková et al. 2020) from its file ``global_raw.h5ad``.

    Covariates are ``cell_type``, ``batch``, ``gender`` and ``age``.

    Parameters
    ----------
    path
        The file.
    **options
        ``columns``, ``gene_column``, ``share``, ``n_genes``, ``common_share`` and ``cache``, see :meth:`Atlas.load`.

    Returns
    -------
    The data set, with the type of each cell as its label.

    Examples
    --------
    >>> load_heart("global.csv")
    Traceback (most recent call last):
    ...
    ValueError: The heart atlas must be an .h5ad file, found 'global.csv'.
    """
    return HEART.load(path, **options)
