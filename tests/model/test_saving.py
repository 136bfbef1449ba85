"""A saved model is whole or the one before, and what it was saved with comes back."""

from __future__ import annotations

import gc
import os
import pickle
import shutil
import subprocess
import sys
import warnings
import weakref

import anndata
import mudata
import numpy as np
import pytest
import scipy.sparse as sp

from sccountsdiff import CountsDiffImputer, files
from sccountsdiff.model import model_files
from sccountsdiff.model.saving import read_model
from sccountsdiff.nn import MLP


def load(path, adata=False, **kwargs):
    return CountsDiffImputer.load(path, adata=adata, accelerator="cpu", **kwargs)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


class TestReplacing:
    def test_data_goes_with_its_model(self, trained, plain, tmp_path):
        trained.save(tmp_path / "model", save_anndata=True)
        plain.save(tmp_path / "model", overwrite=True)
        with pytest.warns(UserWarning, match="No data was saved with the model"):
            model = load(tmp_path / "model", None)
        assert model.adata is None and len(names(tmp_path / "model")) == 3

    def test_other_files_stay(self, plain, tmp_path):
        for name in ("notes.txt", "adata.h5ad", "README.md"):
            (tmp_path / name).write_text("mine")
        with pytest.raises(ValueError, match="already exists: choose another folder, or pass `overwrite=True`"):
            plain.save(tmp_path)
        for _ in range(2):
            plain.save(tmp_path, overwrite=True)
        plain.save(tmp_path, prefix="other_", overwrite=True)
        assert load(tmp_path).is_trained and load(tmp_path, prefix="other_").is_trained
        assert all((tmp_path / name).read_text() == "mine" for name in ("notes.txt", "adata.h5ad", "README.md"))
        assert len(names(tmp_path)) == 3 + 2 + 3

    @pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
    @pytest.mark.parametrize("after", range(4))
    def test_the_old_model_stays_if_saving_fails(self, trained, plain, tmp_path, monkeypatch, after, error):
        folder = tmp_path / "model"
        trained.save(folder, save_anndata=True)
        before = names(folder)
        replaced, replacing = [], files.replacing

        def fail(path):
            replaced.append(path)
            if len(replaced) > after:
                raise error
            return replacing(path)

        for module in (files, model_files):
            monkeypatch.setattr(module, "replacing", fail)
        with pytest.raises(type(error)):
            plain.save(folder, overwrite=True, save_anndata=True)
        monkeypatch.undo()
        model = load(folder, None)
        assert (model.adata.n_obs == trained.adata.n_obs) == (after < 3)  # the JSON file is the third
        assert set(before) <= set(names(folder)) or after == 3
        plain.save(folder, overwrite=True)
        assert load(folder).is_trained and len(names(folder)) == 3

    def test_a_first_save_that_was_killed_is_no_obstacle(self, plain, tmp_path):
        plain.save(tmp_path / "model")
        for name in ("model.json", "README.md"):
            (tmp_path / "model" / name).unlink()
        plain.save(tmp_path / "model")
        assert load(tmp_path / "model").is_trained and len(names(tmp_path / "model")) == 3

    def test_what_cannot_be_written_is_found_before(self, plain, tmp_path, monkeypatch):
        monkeypatch.setattr(model_files, "save_file", lambda *args: pytest.fail("began to write"))
        (tmp_path / "file").write_text("")
        with pytest.raises(OSError):
            plain.save(tmp_path / "file" / "model")
        usage = shutil.disk_usage(tmp_path)
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=100))
        with pytest.raises(OSError, match=r"model\.json cannot be written: .* MiB are needed, 0 are free"):
            plain.save(tmp_path / "model")

    @pytest.mark.skipif(os.name == "nt", reason="there are no such limits")
    @pytest.mark.parametrize("largest", [100, 3_000, 14_000])
    def test_a_full_disk(self, plain, tmp_path, largest):
        """As far as a process can tell: no file may grow beyond some size."""
        import resource

        plain.save(tmp_path / "model", save_anndata=True)
        before = {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()}
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest, hard))
        try:
            with pytest.raises(OSError, match="cannot be written: .*[Ff]ile too large"):
                plain.save(tmp_path / "model", overwrite=True, save_anndata=True)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        after = {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()}
        assert before.items() <= after.items()
        plain.save(tmp_path / "model", overwrite=True, save_anndata=True)
        assert len(names(tmp_path / "model")) == 4


class TestRefusals:
    def test_arguments(self, plain, tmp_path):
        with pytest.raises(TypeError, match="`save_kwargs`"):
            plain.save(tmp_path / "model", save_kwargs={"pickle_protocol": 4})
        with pytest.raises(ValueError, match="`prefix` must be the beginning of the name of a file"):
            plain.save(tmp_path / "model", prefix="a/b")
        with pytest.raises(TypeError, match="`datamodule` must be None"):
            load(tmp_path, datamodule=3)
        plain.save(tmp_path / "model")
        with pytest.raises(ValueError, match="`save_anndata=True`, but the model was loaded without data"):
            load(tmp_path / "model").save(tmp_path / "again", save_anndata=True)

    def test_a_backbone_that_is_not_there(self, simulate, train, tmp_path):
        class Own(MLP):
            pass

        train(simulate(30).adata, 1, model_kwargs={"backbone": Own}).save(tmp_path / "model")
        assert type(load(tmp_path / "model").module.denoiser.backbone) is Own
        script = f"from sccountsdiff import CountsDiffImputer as C\nC.load({str(tmp_path / 'model')!r}, adata=False)"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        assert done.returncode == 1
        last = done.stderr.strip().splitlines()[-1]
        assert last.startswith("ValueError") and "Own, which is not defined here: import the module" in last


class TestData:
    def test_all_zeros(self, trained, saved, query):
        """scvi-tools takes such data for "minified"."""
        query.X = sp.csr_matrix(query.shape, dtype=np.float32)
        model = load(saved, query)
        assert model.adata is query

    def test_in_a_file(self, trained, query, tmp_path):
        query.write_h5ad(tmp_path / "cells.h5ad")
        backed = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
        CountsDiffImputer.setup_anndata(backed)
        model = CountsDiffImputer(backed, n_hidden=4, n_layers=1)
        model.save(tmp_path / "model", save_anndata=True)
        assert str(backed.filename) == str(tmp_path / "cells.h5ad")  # not that of the copy
        again = load(tmp_path / "model", None)
        np.testing.assert_array_equal(again.adata.X.toarray(), query.X.toarray())

    def test_mudata(self, simulate, tmp_path):
        mdata = mudata.MuData({"rna": simulate(30).adata})
        CountsDiffImputer.setup_mudata(mdata, modalities={"layer": "rna"})
        CountsDiffImputer(mdata, n_hidden=4, n_layers=1).save(tmp_path / "model", save_anndata=True)
        again = load(tmp_path / "model", None)
        np.testing.assert_array_equal(again.adata["rna"].X.toarray(), mdata["rna"].X.toarray())

    @pytest.mark.parametrize("values", [["a", "b"], [1, 2], [False, True], [0.5, 1.5]], ids=str)
    def test_categories_keep_their_type(self, simulate, tmp_path, values):
        adata = simulate(40).adata
        adata.obs["group"] = np.resize(values, 40)
        CountsDiffImputer.setup_anndata(adata, categorical_covariate_keys=["group"])
        model = CountsDiffImputer(adata, n_hidden=4, n_layers=1)
        model.save(tmp_path / "model")
        again = load(tmp_path / "model", simulate_again(adata))
        assert again.categories["group"].dtype == model.categories["group"].dtype
        assert again.categories["group"].tolist() == values


def simulate_again(adata):
    """The same data, as it is without a set-up."""
    return anndata.AnnData(adata.X.copy(), obs=adata.obs[["group"]].copy(), var=adata.var.copy())


def test_the_registry_can_be_read_alone(saved, trained, capsys):
    assert CountsDiffImputer.load_registry(saved)["setup_args"] == trained.registry_["setup_args"]
    CountsDiffImputer.view_setup_args(saved)
    assert "categorical_covariate_keys" in capsys.readouterr().out
    assert read_model(saved).data is None


def test_data_that_nobody_holds_is_freed(simulate, train):
    adata = simulate(30).adata
    model = train(adata, 1)
    data, manager = weakref.ref(adata), weakref.ref(model.adata_manager)
    del adata
    gc.collect()
    assert data() is model.adata, "a model holds its data"
    del model
    for _ in range(2):  # first the model goes, then what it held
        gc.collect()
    assert data() is None and manager() is None


def test_data_that_was_set_up_needs_no_more_to_be_copied_and_read(simulate, tmp_path):
    adata = simulate(30).adata
    CountsDiffImputer.setup_anndata(adata)
    assert "sccountsdiff" not in pickle.dumps(adata).decode("latin1").replace("_sccountsdiff", "")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = pickle.loads(pickle.dumps(adata))
    CountsDiffImputer.setup_anndata(again)
    assert CountsDiffImputer(again, n_hidden=4, n_layers=1).adata is again
