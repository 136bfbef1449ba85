"""Data in any form that users may have: shapes, types, formats, names, covariates and masks, right and wrong."""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

import anndata as ad
import hypothesis.strategies as st
import numpy as np
import pandas as pd
import scipy.sparse as sp

GENES = [f"gene{j}" for j in range(6)]
"""Genes that the model of these tests knows."""

DTYPES = [
    "int8",
    "uint8",
    "int16",
    "int32",
    "int64",
    "uint32",
    "float16",
    "float32",
    "float64",
    "bool",
    "object",
    "complex64",
    "str",
]
FORMATS = ["dense", "fortran", "csr", "csc", "coo", "csr_array", "csc_array", "masked", "matrix", "frame", "list"]
PLACES = ["memory", "view", "backed", "backed_view", "zarr"]
NAMES = ["a", "B cell", "", "ü", "1", "a/b", "a\nb", " ", "nan", "None", "🧬"]


TRIED: dict[str, Counter] = defaultdict(Counter)
"""Examples of each property, and what became of them."""


@dataclass(frozen=True)
class Case:
    """One way in which data may come, and all that is needed to make it."""

    n_cells: int
    seed: int
    dtype: str
    format: str
    place: str
    genes: tuple[str, ...]
    broken: str | None
    mask: str | None
    covariate: str | None

    def make(self, folder: Path) -> ad.AnnData:
        """The data, or an error of anndata's own if it cannot hold such a thing."""
        rng = np.random.default_rng(self.seed)
        shape = (self.n_cells, len(self.genes))
        counts = rng.poisson(rng.gamma(1.0, 2.0, shape)).astype(float)
        if self.broken is not None and counts.size:
            value = {"negative": -1.0, "fraction": 0.5, "nan": np.nan, "inf": np.inf, "huge": 2.0**60}[self.broken]
            counts.flat[rng.integers(counts.size)] = value
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            matrix = as_format(counts.astype(self.dtype), self.format)
        obs = pd.DataFrame(index=[f"cell{i}" for i in range(self.n_cells)])
        if self.covariate is not None:
            obs["group"] = covariate(self.covariate, self.n_cells, rng)
        adata = ad.AnnData(matrix, obs=obs, var=pd.DataFrame(index=list(self.genes)))
        if self.mask is not None:
            seen = rng.random(shape) < 0.8
            adata.layers["seen"] = {
                "bool": seen,
                "csr": sp.csr_matrix(seen),
                "int": seen.astype(int),
                "float": seen * 0.5,
            }[self.mask]
        return self._place(adata, folder)

    def _place(self, adata: ad.AnnData, folder: Path) -> ad.AnnData:
        if self.place == "view":
            return adata[np.arange(self.n_cells)[::-1]]
        if self.place.startswith("backed"):
            path = folder / "cells.h5ad"
            adata.write_h5ad(path)
            backed = ad.read_h5ad(path, backed="r")
            return backed[: self.n_cells] if self.place == "backed_view" else backed
        if self.place == "zarr":
            adata.write_zarr(folder / "cells.zarr")
            return ad.read_zarr(folder / "cells.zarr")
        return adata


def as_format(matrix: np.ndarray, format: str):
    """A matrix in one of the ways to store it; an error if there is none for its type."""
    if format == "fortran":
        return np.asfortranarray(matrix)
    if format == "masked":
        return np.ma.MaskedArray(matrix, mask=np.zeros(matrix.shape, dtype=bool))
    if format == "matrix":
        return np.matrix(matrix)
    if format == "frame":
        return pd.DataFrame(matrix)
    if format == "list":
        return matrix.tolist()
    return matrix if format == "dense" else getattr(sp, format if "_" in format else f"{format}_matrix")(matrix)


def covariate(kind: str, n: int, rng: np.random.Generator):
    """A column of covariates."""
    values = {
        "text": rng.choice(NAMES, n),
        "category": pd.Categorical(rng.choice(["x", "y"], n), categories=["x", "y", "unused"]),
        "int": rng.integers(3, size=n),
        "bool": rng.random(n) < 0.5,
        "float": rng.normal(size=n) * 10.0 ** rng.integers(-300, 300),
        "missing": np.where(rng.random(n) < 0.5, None, "x"),
        "date": pd.date_range("2020-01-01", periods=n),
        "mixed": [["a", 1][i % 2] for i in range(n)],
        "nan": np.full(n, np.nan),
        "inf": np.full(n, np.inf),
    }
    return values[kind]


genes = st.one_of(
    st.just(tuple(GENES)),
    st.permutations(GENES).map(tuple),
    st.lists(st.sampled_from([*GENES, *NAMES]), max_size=8).map(tuple),
)

cases = st.builds(
    Case,
    n_cells=st.one_of(st.integers(2, 12), st.integers(0, 2)),
    seed=st.integers(0, 2**16),
    dtype=st.one_of(st.sampled_from(["float32", "int64"]), st.sampled_from(DTYPES)),
    format=st.one_of(st.sampled_from(["dense", "csr"]), st.sampled_from(FORMATS)),
    place=st.sampled_from(PLACES),
    genes=genes,
    broken=st.one_of(st.none(), st.none(), st.sampled_from(["negative", "fraction", "nan", "inf", "huge"])),
    mask=st.one_of(st.none(), st.sampled_from(["bool", "csr", "int", "float"])),
    covariate=st.one_of(
        st.none(),
        st.sampled_from(["text", "category", "int", "bool", "float", "missing", "date", "mixed", "nan", "inf"]),
    ),
)

odd = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 4),
    st.floats(),
    st.text(max_size=3),
    st.just([]),
    st.just({}),
    st.just(2**64),
)
"""What an argument may be given by mistake."""

arguments = st.fixed_dictionaries(
    {},
    optional={
        "n_samples": st.one_of(st.integers(1, 3), odd),
        "n_steps": st.one_of(st.integers(1, 3), odd),
        "n_folds": st.one_of(st.integers(1, 3), odd),
        "seed": st.one_of(st.integers(0, 9), odd),
        "batch_size": st.one_of(st.integers(1, 5), odd),
        "key_added": st.one_of(st.just("result"), st.sampled_from(NAMES), odd),
        "guidance": st.one_of(st.floats(0, 2), odd),
        "known": st.one_of(st.sampled_from(["clean", "noised"]), odd),
        "final": st.one_of(st.sampled_from(["sample", "mean", "log_mean"]), odd),
        "quantiles": st.one_of(st.just([0.5]), odd),
        "indices": st.one_of(st.just([0]), st.just(slice(1)), odd),
        "return_mean": st.booleans(),
    },
)

command_lines = st.lists(
    st.one_of(
        st.sampled_from(
            ["train", "impute", "demo", "benchmark", "info", "--help", "-h", "--version", "--output", "--cells"]
        ),
        st.sampled_from(
            ["imputation", "images", "sweep", "paper", "list", "nope.h5ad", "nowhere", "--max-epochs", "0", "-1", "nan"]
        ),
        st.text(max_size=5).filter(lambda text: "\0" not in text),
    ),
    max_size=5,
)
