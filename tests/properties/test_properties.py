"""Whatever comes in: it works and what must hold holds, or it is refused by an error of ours that names the argument."""

from __future__ import annotations

import contextlib
import inspect
import io
import logging
import shutil
import traceback
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

import anndata as ad
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, note
from hypothesis import strategies as st
from strategies import GENES, TRIED, calls, cases, command_lines, damages, examples

import sccountsdiff
from sccountsdiff import CountsDiffImputer, checkpoints
from sccountsdiff.cli import main
from sccountsdiff.files import digest_of_file

PACKAGE = str(Path(sccountsdiff.__file__).parent)
QUICK = {"n_samples": 1, "n_steps": 1, "n_folds": 1, "silent": True, "batch_size": 8}
OURS = (ValueError, TypeError, KeyError, OSError, IndexError, RuntimeError)


@pytest.fixture(autouse=True)
def silent():
    """Thousands of warnings help nobody."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@contextlib.contextmanager
def works_or_is_refused(what):
    """Let errors pass that we raised ourselves, on purpose; others are the ones we look for."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except OURS as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        note(f"{type(error).__name__}: {error}")
        assert last.filename.startswith(PACKAGE), f"a foreign error, from {last.filename}:{last.lineno}: {error!r}"
        assert last.line.lstrip().startswith("raise"), f"an accident in {last.filename}:{last.lineno}: {error!r}"
        assert len(str(error)) > 15, "an error that says nothing"
        TRIED[what]["refused"] += 1
    else:
        TRIED[what]["worked"] += 1
    TRIED[what]["examples"] += 1


def made(case, folder):
    """The data of a case, or ``None`` if anndata itself does not take such a thing."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return case.make(folder)
    except Exception:  # noqa: BLE001 - not ours
        return None


def dense(matrix):
    matrix = matrix[:] if not isinstance(matrix, np.ndarray) and not sp.issparse(matrix) else matrix
    return matrix.toarray() if sp.issparse(matrix) else np.asarray(matrix)


def assert_same(one, other):
    """Arrays are equal, those of objects too, of which a NaN equals no other."""
    if one.dtype == object:
        assert one.tolist() == other.tolist()
    else:
        np.testing.assert_array_equal(one, other)


def assert_observed_stays(before, after, filled):
    """Counts that were not filled in are the same, bit for bit; the others are counts."""
    kept = ~filled
    np.testing.assert_array_equal(after[kept], before[kept].astype(after.dtype))
    assert (after[filled] >= 0).all() and (after[filled] == np.round(after[filled])).all()


@examples(25, 3000)
@given(case=cases)
def test_data_of_any_form_is_imputed_or_refused(plain_model, grouped_model, case):
    model = plain_model if case.covariate is None else grouped_model
    with TemporaryDirectory() as folder:
        adata = made(case, Path(folder))
        if adata is None:
            TRIED["data_of_any_form_is_imputed_or_refused"]["not data"] += 1
            return
        before, layers = dense(adata.X).copy(), set(adata.layers)
        with works_or_is_refused("data_of_any_form_is_imputed_or_refused"):
            after = dense(model.impute(adata, seed=1, key_added=None, unseen_to_null=True, **QUICK))
            missing = np.isnan(before) if before.dtype.kind == "f" else np.zeros(before.shape, bool)
            known = np.isin(adata.var_names, GENES)
            filled = missing | (before == 0)  # the cells that the model was trained on had none missing
            assert_observed_stays(before, after, filled & known)
            again = dense(model.impute(adata, seed=1, key_added=None, unseen_to_null=True, **QUICK))
            np.testing.assert_array_equal(after, again)
        assert_same(dense(adata.X), before)
        assert set(adata.layers) == layers
        if adata.isbacked:
            adata.file.close()


@examples(25, 3000)
@given(case=cases)
def test_data_of_any_form_is_set_up_or_refused(case):
    with TemporaryDirectory() as folder:
        adata = made(case, Path(folder))
        if adata is None:
            TRIED["data_of_any_form_is_set_up_or_refused"]["not data"] += 1
            return
        before = dense(adata.X).copy()
        with works_or_is_refused("data_of_any_form_is_set_up_or_refused"):
            keys = {} if case.covariate is None else {"categorical_covariate_keys": ["group"]}
            if case.covariate in ("float", "inf", "nan"):
                keys = {"continuous_covariate_keys": ["group"]}
            mask = {} if case.mask is None else {"mask_layer": "seen"}
            adata = adata.copy() if adata.is_view and not adata.isbacked else adata
            CountsDiffImputer.setup_anndata(adata, **keys, **mask)
            model = CountsDiffImputer(adata, n_hidden=4, n_layers=1)
            assert all(value.isfinite().all() for value in model.module.state_dict().values())
        assert_same(dense(adata.X), before)
        if adata.isbacked:
            adata.file.close()


@examples(25, 5500)
@given(call=calls)
def test_arguments_are_taken_or_refused(plain_model, call):
    method, given_arguments = call
    counts = np.random.default_rng(0).poisson(1.0, (6, len(GENES))).astype(np.float32)
    adata = ad.AnnData(sp.csr_matrix(counts), var={"name": GENES})
    adata.var_names = GENES
    names = inspect.signature(getattr(CountsDiffImputer, method)).parameters
    arguments = {name: value for name, value in QUICK.items() if name in names} | given_arguments
    if method == "generate":
        arguments = {"n_cells": 2, **arguments}
    else:
        arguments["adata"] = adata
    with works_or_is_refused("arguments_are_taken_or_refused"):
        result = getattr(plain_model, method)(**arguments)
        assert np.isfinite(dense(result.X if isinstance(result, ad.AnnData) else result)).all()
        if method == "impute" and given_arguments.get("key_added") and "indices" not in given_arguments:
            with TemporaryDirectory() as folder:  # what is written can be read
                adata.write_h5ad(Path(folder, "cells.h5ad"))
                assert given_arguments["key_added"] in ad.read_h5ad(Path(folder, "cells.h5ad")).layers
    np.testing.assert_array_equal(adata.X.toarray(), counts)


@contextlib.contextmanager
def limited_memory(more=2**30):
    """Let the process have no more than so many bytes more: sizes in damaged files may be anything."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 2**20
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


READERS = {
    "cells.h5ad": sccountsdiff.io.read,
    "cells.h5mu": sccountsdiff.io.read,
    "cells.zarr": sccountsdiff.io.read,
    "model": lambda path: CountsDiffImputer.load(path, accelerator="cpu"),
    "last.ckpt": checkpoints.read_checkpoint,
    "history.csv": lambda path: pytest.importorskip("sccountsdiff.benchmark.images.training").read_history(path),
}


@examples(25, 1000)
@given(name=st.sampled_from(list(READERS)), damage=damages)
def test_damaged_files_are_read_or_refused(files, name, damage):
    with TemporaryDirectory() as folder:
        copy = Path(folder, name)
        (shutil.copytree if files[name].is_dir() else shutil.copy)(files[name], copy)
        damage.apply(copy)
        with works_or_is_refused("damaged_files_are_read_or_refused"), limited_memory():
            READERS[name](copy)


@examples(25, 1000)
@given(command=command_lines)
def test_command_lines_run_or_end_with_a_line(files, command):
    whole = {name: digest(path) for name, path in files.items()}
    said = io.StringIO()
    with TemporaryDirectory() as folder, contextlib.chdir(folder):
        if "demo" in command[:1]:
            command = [*command, "--no-such-option"]  # this would work, for minutes
        places = {"{data}": files["cells.h5ad"], "{model}": files["model"], "{output}": "output.h5ad"}
        command = [str(places.get(word, word)) for word in command]
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), pytest.raises(SystemExit) as caught:
            raise SystemExit(main(command) or 0)
    said = said.getvalue()
    note(said)
    assert "Traceback" not in said or "--traceback" in command
    assert said.strip() or "--quiet" in command, "nothing is said"
    assert {name: digest(path) for name, path in files.items()} == whole, "an input was changed"
    what = TRIED["command_lines_run_or_end_with_a_line"]
    what["examples"] += 1
    what["worked" if caught.value.code in (0, None) else "refused"] += 1


def digest(path):
    """What is in a file, or in all files of a folder."""
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    return [(file.name, digest_of_file(file)) for file in files]
