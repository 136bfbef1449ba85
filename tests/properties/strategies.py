"""Data in any form that users may have: shapes, types, formats, names, covariates and masks, right and wrong."""

from __future__ import annotations

import inspect
import os
import warnings
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

import anndata as ad
import hypothesis.strategies as st
import numpy as np
import pandas as pd
import scipy.sparse as sp
import torch
from hypothesis import settings
from mudata import MuData

from sccountsdiff import CountsDiffImputer
from sccountsdiff.cli import _parser

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
"""Examples of each property, by the name of its test, and what became of them."""


def examples(quick: int, long: int) -> settings:
    """How many examples are tried: every day, and by ``make fuzz``."""
    return settings(max_examples=long if os.environ.get("FUZZ_PROFILE") == "long" else quick)


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

GOOD = {
    "n_samples": st.integers(1, 3),
    "n_steps": st.integers(1, 3),
    "n_folds": st.integers(1, 3),
    "n_cells": st.integers(1, 4),
    "seed": st.integers(0, 9),
    "batch_size": st.integers(1, 5),
    "key_added": st.sampled_from(["result", *NAMES]),
    "guidance": st.floats(0, 2),
    "known": st.sampled_from(["clean", "noised"]),
    "final": st.sampled_from(["sample", "mean", "log_mean"]),
    "quantiles": st.just([0.5]),
    "indices": st.sampled_from([[0], slice(1), ["0"], [True] * 6, [5, 0, 0]]),
    "return_mean": st.booleans(),
    "return_numpy": st.booleans(),
    "what": st.sampled_from(["missing", "zeros"]),
    "sites": st.just(np.eye(6, dtype=bool)),
    "genes": st.lists(st.sampled_from(GENES), min_size=1),
    "gene_list": st.lists(st.sampled_from(GENES), min_size=1),
    "min_value": st.floats(0, 3),
    "layer": st.just("X"),
    "depth": st.floats(1.1, 5),
    "target_sum": st.floats(1, 1e4),
    "unseen": st.booleans(),
    "library_size": st.one_of(st.floats(1, 1e4), st.just("latent")),
    "covariates": st.just({}),
    "transform_covariates": st.just({"group": "x"}),
    "transform_batch": st.just("x"),
    "unseen_to_null": st.booleans(),
    "attrition": st.floats(0, 1),
    "n_resamples": st.integers(1, 2),
    "jump_length": st.integers(1, 2),
}
"""Arguments of the methods below, and values that they may have; all of them also get odd ones."""

METHODS = ("impute", "denoise", "generate", "get_normalized_expression", "log_likelihood")


def arguments_of(method: str) -> st.SearchStrategy:
    """Some arguments of a method, right or odd."""
    known = [name for name in inspect.signature(getattr(CountsDiffImputer, method)).parameters if name in GOOD]
    return st.fixed_dictionaries({}, optional={name: st.one_of(GOOD[name], odd) for name in known})


calls = st.sampled_from(METHODS).flatmap(lambda method: st.tuples(st.just(method), arguments_of(method)))


WORDS = ["nope.h5ad", "nowhere", "0", "-1", "nan", "inf", "1e300", "2", "mcar:0", "x=1", "=", "", "--", "ü", "0.5"]


def options_of(command: str) -> list[str]:
    """Names of the options of a command, in the order of its help."""
    parser = next(a for a in _parser([command])._actions if a.choices).choices[command]
    return [name for action in parser._actions for name in action.option_strings]


def lines_of(command: str) -> st.SearchStrategy:
    """Files for a command, with some options and values, right or wrong."""
    files = {"generate": ["{model}", "{output}"], "inspect": ["{model}"], "train": ["{data}", "{output}"]}
    quick = {
        "generate": ["--n-cells", "2", "--n-steps", "1"],
        "train": ["--max-epochs", "1"],
        "impute": ["--n-folds", "1"],
    }
    value = st.one_of(st.sampled_from(WORDS), st.sampled_from(["{data}", "{model}", *GENES]), texts)
    some = st.lists(st.one_of(st.sampled_from(options_of(command)), value), max_size=4)
    start = [command, *files.get(command, ["{data}", "{model}", "{output}"]), *quick.get(command, [])]
    return some.map(lambda more: [*start, *more])


texts = st.text(max_size=5).filter(lambda text: "\0" not in text)
nonsense = st.lists(
    st.one_of(st.sampled_from(["train", "impute", "demo", "benchmark", "inspect", "-h", "--version", *WORDS]), texts),
    max_size=5,
)
kinds = st.sampled_from(["imputation", "images", "sweep", "paper", "simulated", "speed", "tune"])
benchmarks = st.tuples(kinds, nonsense).map(lambda parts: ["benchmark", parts[0], *parts[1], "--no-such-option"])
command_lines = st.one_of(
    nonsense,
    benchmarks,
    st.sampled_from(["impute", "denoise", "normalize", "generate", "inspect", "train"]).flatmap(lines_of),
)


def make_files(folder: Path, model: CountsDiffImputer) -> dict[str, Path]:
    """A whole file, or folder, of each kind that is read."""
    cells = ad.AnnData(model.adata.X.copy(), obs=model.adata.obs.copy(), var=pd.DataFrame(index=GENES))
    cells.write_h5ad(folder / "cells.h5ad")
    cells.write_zarr(folder / "cells.zarr")
    MuData({"rna": cells}).write(folder / "cells.h5mu")
    model.save(folder / "model", save_anndata=True)
    torch.save({"global_step": 1, "state_dict": model.module.state_dict()}, folder / "last.ckpt")
    pd.DataFrame({"step": [0, 2], "train_loss": [2.0, 1.5]}).to_csv(folder / "history.csv", index=False)
    names = ("cells.h5ad", "cells.zarr", "cells.h5mu", "model", "last.ckpt", "history.csv")
    return {name: folder / name for name in names}


@dataclass(frozen=True)
class Damage:
    """What happens to a file: it is cut off, or some of its bytes become others."""

    kind: str
    which: int
    share: float
    bytes: bytes

    def apply(self, path: Path) -> None:
        """Damage a file, or one of those in a folder."""
        if path.is_dir():
            files = sorted(file for file in path.rglob("*") if file.is_file())
            path = files[self.which % len(files)]
        content = path.read_bytes()
        at = round(self.share * len(content))
        end = {"cut": len(content), "insert": at, "overwrite": at + len(self.bytes)}[self.kind]
        path.write_bytes(content[:at] + (b"" if self.kind == "cut" else self.bytes) + content[end:])


damages = st.builds(
    Damage,
    kind=st.sampled_from(["cut", "insert", "overwrite"]),
    which=st.integers(0, 40),
    share=st.floats(0, 1),
    bytes=st.binary(min_size=1, max_size=8),
)
