"""A pickle is read only if that is asked for, and what it holds is checked."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch
from scvi.model.base import BaseModelClass

from sccountsdiff import CountsDiffImputer

QUICK = {"n_samples": 2, "n_steps": 2, "seed": 5, "batch_size": 16, "silent": True, "return_mean": False}


def load(path, adata=False, **kwargs):
    return CountsDiffImputer.load(path, adata=adata, accelerator="cpu", **kwargs)


class Touch:
    """What makes a pickle dangerous: it says what is to be called when it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.fixture
def as_pickle(trained):
    """Return a function that saves a model as scvi-tools does, as was done before."""

    def _as_pickle(path):
        BaseModelClass.save(trained, path)
        return path

    return _as_pickle


class TestPickles:
    def test_a_hostile_model_is_not_run(self, tmp_path):
        touched = tmp_path / "touched"
        (tmp_path / "model").mkdir()
        torch.save({"model_state_dict": {}, "attr_dict": Touch(touched)}, tmp_path / "model" / "model.pt")
        with pytest.raises(ValueError, match=r"model\.pt can run any code.*allow_pickle=True"):
            load(tmp_path / "model")
        for reader in (CountsDiffImputer.load_registry, CountsDiffImputer.view_setup_args):
            with pytest.raises(ValueError, match=r"model\.pt can run any code"):
                reader(tmp_path / "model")
        assert not touched.exists()
        with pytest.raises(ValueError, match="not a model of sccountsdiff"):
            load(tmp_path / "model", allow_pickle=True)
        assert touched.exists(), "otherwise the proof proves nothing"

    def test_load_when_asked_for(self, as_pickle, tmp_path, trained, query):
        path = as_pickle(tmp_path / "old")
        model = load(path, query, allow_pickle=True)
        np.testing.assert_array_equal(model.impute(**QUICK), trained.impute(query.copy(), **QUICK))

    def test_with_single_precision_covariates(self, as_pickle, tmp_path, query):
        path = as_pickle(tmp_path / "old") / "model.pt"
        content = torch.load(path, weights_only=False)
        for key in ("location", "scale"):
            content["model_state_dict"][key] = content["model_state_dict"][key].float()
        torch.save(content, path)
        assert load(path.parent, query, allow_pickle=True).module.location.dtype == torch.float64

    def test_saved_again_they_are_data(self, as_pickle, tmp_path):
        path = as_pickle(tmp_path / "old")
        load(path, allow_pickle=True).save(path, overwrite=True)
        assert load(path).is_trained and not (path / "model.pt").exists()

    @pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x80\x04N.", b"not a pickle"])
    def test_what_is_none(self, tmp_path, content):
        (tmp_path / "model.pt").write_bytes(content)
        with pytest.raises(ValueError, match=r"model\.pt (is damaged|is not a model)"):
            load(tmp_path, allow_pickle=True)
