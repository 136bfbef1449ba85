"""The files of a model hold nothing that runs, and say what is wrong with them."""

from __future__ import annotations

import json
import os
import pickle
import shutil

import pytest

from sccountsdiff import CountsDiffImputer
from sccountsdiff.files import digest_of_file
from sccountsdiff.model.model_files import checksum


def load(path, adata=False, **kwargs):
    return CountsDiffImputer.load(path, adata=adata, accelerator="cpu", **kwargs)


@pytest.fixture
def copy(saved, tmp_path):
    """A copy of the saved model, which a test may spoil."""
    return shutil.copytree(saved, tmp_path / "model")


@pytest.fixture
def rewrite(copy):
    """Return a function that changes the description, with a checksum that fits it."""

    def _rewrite(change):
        path = copy / "model.json"
        outer = json.loads(path.read_text())
        change(outer["content"])
        outer["checksum"] = checksum(outer["content"])
        path.write_text(json.dumps(outer))
        return copy

    return _rewrite


class TestNothingRuns:
    def test_no_pickle_is_written(self, trained, tmp_path):
        trained.save(tmp_path / "model", save_anndata=True)
        for path in (tmp_path / "model").iterdir():
            assert path.suffix in (".json", ".safetensors", ".h5ad", ".md")
            with pytest.raises((pickle.UnpicklingError, EOFError, ValueError, KeyError, IndexError)):
                pickle.loads(path.read_bytes())

    @pytest.mark.parametrize("name", ["../other/model.safetensors", "/etc/hostname", "..", "a\\b", "", 3])
    def test_a_description_reaches_no_other_folder(self, rewrite, name):
        folder = rewrite(lambda content: content["files"]["weights"].update(name=name))
        with pytest.raises(ValueError, match=r"model\.json cannot be read as a model: .*is not the name of a file"):
            load(folder)

    def test_only_attributes_of_models_are_set(self, rewrite):
        folder = rewrite(lambda content: content["attributes"].update({"__class__": 1}))
        with pytest.raises(ValueError, match=r"it has an attribute '__class__'"):
            load(folder)

    def test_only_set_ups_are_called(self, rewrite, query):
        folder = rewrite(lambda content: content["attributes"]["registry_"].update(setup_method_name="push_to_hub"))
        assert load(folder, query).adata is query


class TestDamage:
    @pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
    @pytest.mark.parametrize("suffix", [".json", ".safetensors", ".h5ad"])
    def test_what_was_cut_off(self, trained, tmp_path, suffix, share):
        trained.save(tmp_path / "model", save_anndata=True)
        (path,) = (tmp_path / "model").glob(f"*{suffix}")
        os.truncate(path, int(share * path.stat().st_size))
        with pytest.raises(ValueError, match=rf"{path.name} is damaged"):
            load(tmp_path / "model", None)

    def test_a_single_byte(self, copy):
        (path,) = copy.glob("*.safetensors")
        content = bytearray(path.read_bytes())
        content[-5] ^= 1
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"model-.*\.safetensors is damaged: it does not hold what was saved"):
            load(copy)

    def test_a_changed_setting(self, copy):
        path = copy / "model.json"
        path.write_text(path.read_text().replace('"p_uncond": 0.2', '"p_uncond": 0.3'))
        with pytest.raises(ValueError, match=r"model\.json is damaged: it does not hold what was saved"):
            load(copy)

    def test_a_lost_file(self, copy):
        next(copy.glob("*.safetensors")).unlink()
        with pytest.raises(FileNotFoundError, match=r"model-.*\.safetensors, which belongs to the model, is missing"):
            load(copy)

    @pytest.mark.parametrize("text", ["{}", "[]", "3", '{"format": "something else"}'])
    def test_foreign(self, tmp_path, text):
        (tmp_path / "model.json").write_text(text)
        with pytest.raises(ValueError, match=r"model\.json is not a model of sccountsdiff"):
            load(tmp_path)

    def test_newer(self, copy):
        path = copy / "model.json"
        path.write_text(path.read_text().replace('"version": 1', '"version": 2', 1))
        with pytest.raises(ValueError, match="has version 2 of the format, but this sccountsdiff reads 1: install"):
            load(copy)

    def test_weights_of_another_model(self, rewrite):
        folder = rewrite(lambda c: c["attributes"]["init_params_"]["non_kwargs"].update(n_hidden=5))
        with pytest.raises(ValueError, match="are not those of such a model: .*size mismatch"):
            load(folder)

    @pytest.mark.parametrize(
        ("path", "value"),
        [
            ("init_params_.non_kwargs", []),
            ("init_params_.non_kwargs.adata", 1),
            ("init_params_.non_kwargs.registry", {}),
            ("init_params_.non_kwargs.nothing", 1),
            ("init_params_.non_kwargs.schedule", "nothing"),
            ("init_params_.non_kwargs.head", 3),
            ("init_params_.kwargs", []),
            ("init_params_.kwargs.backbone_kwargs", 3),
            ("init_params_.kwargs.backbone_kwargs", {"n_hidden": 3}),
            ("registry_.setup_args", 3),
            ("registry_.setup_args", {"adata": 1}),
            ("registry_.setup_args", {"source_registry": 1}),
            ("registry_.field_registries", 3),
            ("registry_.field_registries", {}),
            ("registry_.field_registries.X.state_registry", {}),
            ("registry_.field_registries.extra_categorical_covs.state_registry", {"mappings": 3}),
        ],
        ids=str,
    )
    @pytest.mark.parametrize("with_data", [False, True])
    def test_settings_that_no_model_has(self, rewrite, query, path, value, with_data):
        """With a checksum that fits them."""
        *names, last = path.split(".")

        def change(content):
            place = content["attributes"]
            for name in names:
                place = place[name]
            place[last] = value

        folder = rewrite(change)
        with pytest.raises(ValueError, match=rf"{folder}.* cannot be read as a model: "):
            load(folder, query if with_data else False)

    def test_deeply_nested(self, rewrite):
        nested = []
        for _ in range(600):
            nested = {"$tuple": nested}
        folder = rewrite(lambda content: content["attributes"].update(nested_=nested))
        with pytest.raises(ValueError, match="cannot be read as a model: .*recursion"):
            load(folder)

    def test_data_that_is_none(self, trained, tmp_path):
        trained.save(tmp_path / "model", save_anndata=True)
        (path,) = (tmp_path / "model").glob("*.h5ad")
        path.write_text("no HDF5")
        outer = json.loads((tmp_path / "model" / "model.json").read_text())
        outer["content"]["files"]["data"]["sha256"] = digest_of_file(path)
        outer["checksum"] = checksum(outer["content"])
        (tmp_path / "model" / "model.json").write_text(json.dumps(outer))
        with pytest.raises(ValueError, match=rf"{path.name}' cannot be read"):
            load(tmp_path / "model", None)

    def test_another_class(self, rewrite):
        folder = rewrite(lambda c: c["attributes"]["registry_"].update(model_name="SCVI"))
        with pytest.raises(ValueError, match="holds a model of the class SCVI, not CountsDiffImputer"):
            load(folder)
        assert load(folder, allowed_classes_names_list=["SCVI"]).is_trained
