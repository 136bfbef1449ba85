"""Results that go to a file are those in memory, and an interruption loses nothing."""

from __future__ import annotations

import os

import anndata as ad
import numpy as np
import pytest
import scipy.sparse as sp
import torch

from sccountsdiff.model import denoise, generate, plan
from sccountsdiff.model.streaming import BlockFolder

READ = {".h5ad": ad.read_h5ad, ".zarr": ad.read_zarr}
KWARGS = {"seed": 3, "silent": True, "batch_size": 16, "quantiles": [0.05, 0.9]}


@pytest.fixture(params=list(READ))
def suffix(request):
    if request.param == ".zarr":
        pytest.importorskip("zarr")
    return request.param


@pytest.mark.parametrize("fmt", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("what", ["zeros", "sites"])
def test_the_file_holds_what_memory_would(trained, query, sites, dense, tmp_path, suffix, fmt, what):
    query.X = fmt(query.X.toarray())
    kwargs = KWARGS | ({"sites": sites} if what == "sites" else {"n_folds": 2, "n_samples": 2})
    path = tmp_path / f"result{suffix}"
    assert trained.impute(query, out=path, **kwargs) == path
    assert not set(query.layers) - {None} and "sccountsdiff" not in query.uns
    assert list(tmp_path.iterdir()) == [path]
    trained.impute(query, **kwargs)
    stored = READ[suffix](path)
    assert set(stored.layers) - {None} == set(query.layers) - {None} and stored.X is None
    for name in set(query.layers) - {None}:
        layer = query.layers[name]
        assert sp.issparse(stored.layers[name]) == sp.issparse(layer) and stored.layers[name].dtype == layer.dtype
        np.testing.assert_array_equal(dense(stored.layers[name]), dense(layer))
    assert stored.obs_names.equals(query.obs_names) and stored.var_names.equals(query.var_names)
    assert stored.uns["sccountsdiff"]["imputed"]["seed"] == 3


def test_an_interrupted_call_goes_on_to_the_same_file(trained, query, sites, dense, tmp_path, monkeypatch, suffix):
    path, fill, n_read = tmp_path / f"result{suffix}", plan.fill, []

    def interrupted(*args, **kwargs):
        for position, block in enumerate(fill(*args, **kwargs)):
            if position == 2:
                raise KeyboardInterrupt
            yield block

    def counted(*args, **kwargs):
        for block in fill(*args, **kwargs):
            n_read.append(block.number)
            yield block

    kwargs = KWARGS | {"sites": sites, "n_samples": 3, "n_steps": 2}
    monkeypatch.setattr(plan, "fill", interrupted)
    with pytest.raises(KeyboardInterrupt):
        trained.impute(query, out=path, **kwargs)
    assert not path.exists(), "nothing looks complete that is not"
    monkeypatch.setattr(plan, "fill", counted)
    trained.impute(query, out=path, **kwargs)
    assert n_read == [2, 3], "blocks that were done are not made again"
    trained.impute(query, **kwargs)
    np.testing.assert_array_equal(dense(READ[suffix](path).layers["imputed"]), dense(query.layers["imputed"]))


@pytest.mark.parametrize("changed", ["one count", "two genes", "attrition"])
def test_of_other_data_or_settings_nothing_is_kept(trained, query, sites, dense, tmp_path, monkeypatch, changed):
    path, fill = tmp_path / "result.h5ad", plan.fill

    def interrupted(*args, **kwargs):
        yield next(fill(*args, **kwargs))
        raise KeyboardInterrupt

    rates = torch.zeros(4, *query.shape)  # so many that they are not shown in full
    kwargs = KWARGS | {"sites": sites, "n_samples": 2, "n_steps": 4, "spacing": "even", "attrition": rates}
    monkeypatch.setattr(plan, "fill", interrupted)
    with pytest.raises(KeyboardInterrupt):
        trained.impute(query, out=path, **kwargs)
    monkeypatch.setattr(plan, "fill", fill)
    if changed == "one count":
        counts = query.X.toarray()
        counts[1, 0] += 50
        query.X = type(query.X)(counts)
    elif changed == "two genes":
        names = query.var_names.tolist()
        query.var_names = [names[1], names[0], *names[2:]]
    else:
        kwargs["attrition"] = rates.clone()
        kwargs["attrition"][1:, 3:-3, 3:-3] = 0.3
    trained.impute(query, out=path, **kwargs)
    trained.impute(query, **kwargs)
    np.testing.assert_array_equal(dense(ad.read_h5ad(path).layers["imputed"]), dense(query.layers["imputed"]))


def test_without_a_seed_it_can_go_on_too(trained, query, sites, tmp_path):
    path = tmp_path / "result.h5ad"
    for _ in range(2):  # the second time from nothing, to the same draws
        trained.impute(query, out=path, sites=sites, n_samples=1, n_steps=2, silent=True)
        first = ad.read_h5ad(path)
        path.unlink()
    trained.impute(query, out=path, sites=sites, n_samples=1, n_steps=2, silent=True, seed=0)
    assert first.uns["sccountsdiff"]["imputed"]["seed"] == 0
    assert (first.layers["imputed"] != ad.read_h5ad(path).layers["imputed"]).nnz == 0


def test_other_work_starts_anew(tmp_path):
    path = tmp_path / "result.h5ad"
    BlockFolder(path, {"seed": 0}).save(0, {"imputed": np.ones((2, 2))})
    assert BlockFolder(path, {"seed": 0}).is_done(0)
    assert not BlockFolder(path, {"seed": 1}).is_done(0)


class Touch:
    """What makes a pickle dangerous: it says what is to be called when it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("damage", ["empty", "cut", "changed", "hostile"])
def test_a_damaged_block_is_set_aside_and_made_again(tmp_path, caplog, damage):
    BlockFolder(tmp_path / "result.h5ad", {}).save(0, {"imputed": np.ones((40, 50))})
    (file,) = tmp_path.rglob("*.npz")
    content = bytearray(file.read_bytes())
    if damage == "hostile":
        np.savez(file, imputed=np.array([Touch(tmp_path / "touched")], dtype=object))
    else:
        content[len(content) // 2] ^= 255
        file.write_bytes(content[: {"empty": 0, "cut": 5000, "changed": None}[damage]])
    again = BlockFolder(tmp_path / "result.h5ad", {})
    assert not again.is_done(0) and "00000000.npz is damaged" in caplog.text
    assert not (tmp_path / "touched").exists()
    again.save(0, {"imputed": np.full((40, 50), 2.0)})
    assert again.is_done(0)
    names = ad.AnnData(shape=(40, 50))
    again.finish(names.obs, names.var, {})
    assert (ad.read_h5ad(tmp_path / "result.h5ad").layers["imputed"] == 2).all()
    assert [path.name for path in tmp_path.iterdir()] == ["result.h5ad"]


def test_refusals(trained, query, tmp_path):
    (tmp_path / "there.h5ad").touch()
    for out, message in (
        ("result.csv", "`out` must end in .h5ad or .zarr, not 'result.csv'"),
        ("there.h5ad", "there.h5ad already exists"),
        ("no/folder.h5ad", "The folder of .* does not exist"),
    ):
        with pytest.raises((ValueError, OSError), match=message):
            trained.impute(query, out=tmp_path / out, **KWARGS)
    for options in ({"indices": [1]}, {"return_mean": False, "n_samples": 2}):
        with pytest.raises(ValueError, match="`out` holds layers of all cells"):
            trained.impute(query, out=tmp_path / "result.h5ad", silent=True, **options)


def interrupt(monkeypatch, module):
    """Stop before the third block of cells is read."""
    cell_blocks = module.cell_blocks

    def some(*args, **kwargs):
        for position, block in enumerate(cell_blocks(*args, **kwargs)):
            if position == 2:
                raise KeyboardInterrupt
            yield block

    monkeypatch.setattr(module, "cell_blocks", some)


def test_denoised_counts_go_to_a_file_too(trained, query, tmp_path, monkeypatch, suffix):
    path, expected = tmp_path / f"result{suffix}", trained.denoise(query, batch_size=8, silent=True)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        interrupt(patch, denoise)
        trained.denoise(query, batch_size=8, out=path, silent=True)
    assert not path.exists()
    assert trained.denoise(query, batch_size=8, out=path, silent=True) == path
    stored = READ[suffix](path)
    np.testing.assert_array_equal(stored.layers["denoised"], expected)
    assert stored.obs_names.equals(query.obs_names) and list(stored.var_names) == list(trained.gene_names)
    assert stored.uns["sccountsdiff"]["denoised"]["depth"] == 2
    with pytest.raises(ValueError, match="leave out `indices`"):
        trained.denoise(query, [0], out=tmp_path / f"other{suffix}")


def test_generated_cells_go_to_a_file_too(trained, dense, tmp_path, monkeypatch, suffix):
    asked = {"covariates": {}, "n_steps": 2, "batch_size": 8, "seed": 0, "silent": True}
    path, expected = tmp_path / f"result{suffix}", trained.generate(30, **asked)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        interrupt(patch, generate)
        trained.generate(30, out=path, **asked)
    assert not path.exists()
    assert trained.generate(30, out=path, **asked) == path
    stored = READ[suffix](path)
    np.testing.assert_array_equal(dense(stored.X), dense(expected.X))
    assert sp.issparse(stored.X) and not stored.layers
    assert list(stored.obs["cell_type"]) == list(expected.obs["cell_type"])
    assert stored.uns["sccountsdiff"]["generated"]["seed"] == 0
