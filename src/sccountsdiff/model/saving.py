"""Saved models: weights as safetensors, all else as JSON. Nothing in them can be run.

The JSON file names the files that belong to it, with their checksums, and is written last. Files that it names are never
written to: another save makes new ones, and the old ones go once the JSON file names the new. At every moment, whatever
happens, the folder holds the old model or the new one.
"""

from __future__ import annotations

import hashlib
import json
import logging
import pickle
import re
import warnings
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self
from uuid import uuid4

import torch
from anndata import AnnData
from anndata.io import read_h5ad, write_h5ad
from lightning.pytorch.utilities import rank_zero_only
from mudata import MuData, read_h5mu, write_h5mu
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from scvi.data import AnnDataManager

from sccountsdiff.compat import download, is_mudata_setup, model_name, setup_args, torch_device
from sccountsdiff.files import check_can_write, digest_of_file, remove_leftovers, replacing
from sccountsdiff.io import size_of
from sccountsdiff.model.base import CountsDiffBase
from sccountsdiff.model.card import MADE_BY, model_card
from sccountsdiff.model.json_values import from_json, to_json

logger = logging.getLogger("sccountsdiff")

FORMAT = "sccountsdiff model"
FORMAT_VERSION = 1
PACKAGES = ("sccountsdiff", "anndata", "numpy", "safetensors", "scvi-tools", "torch")
"""Packages whose versions are noted."""


class SavedModel(NamedTuple):
    """What a saved model consists of."""

    attributes: dict[str, Any]
    weights: dict[str, torch.Tensor]
    data: Path | None


class SavingMixin(CountsDiffBase):
    """Saving and loading, as scvi-tools has them, without code in the files."""

    def save(
        self,
        dir_path: str | Path,
        prefix: str | None = None,
        overwrite: bool = False,
        save_anndata: bool = False,
        save_kwargs: dict | None = None,
        legacy_mudata_format: bool = False,
        datamodule: None = None,
        **anndata_write_kwargs,
    ) -> None:
        """Save the model: weights as safetensors, settings and history as JSON, and a model card.

        A model that is there already is replaced at once, when the new one is complete: if saving fails or is killed, it
        stays as it was.

        Parameters
        ----------
        dir_path
            Folder; made if it does not exist.
        prefix
            Of the names of all files, for several models in one folder.
        overwrite
            Replace a model that is there, with its data. Other files in the folder stay.
        save_anndata
            Save the data too.
        save_kwargs, legacy_mudata_format, datamodule
            Of scvi-tools; nothing of that kind is saved.
        **anndata_write_kwargs
            Passed to :meth:`anndata.AnnData.write_h5ad` or :meth:`mudata.MuData.write`.

        Examples
        --------
        >>> model.save("my_model", overwrite=True)
        >>> from pathlib import Path
        >>> sorted(path.suffix for path in Path("my_model").iterdir())
        ['.json', '.md', '.safetensors']
        """
        if getattr(rank_zero_only, "rank", 0) != 0:
            return  # of several processes that train together, the first saves
        if save_kwargs or datamodule is not None:
            raise TypeError("`save_kwargs` and `datamodule` must be None: weights are not saved with torch.save.")
        if save_anndata and self.adata is None:
            raise ValueError("`save_anndata=True`, but the model was loaded without data.")
        folder, prefix = Path(dir_path), _check_prefix(prefix)
        if folder.exists() and not overwrite and not _only_leftovers(folder, prefix):
            raise ValueError(f"{dir_path} already exists: choose another folder, or pass `overwrite=True`.")
        attributes = {name: value for name, value in self._get_user_attributes() if name.endswith("_")}
        content = {
            "class": type(self).__name__,
            "versions": {name: _version(name) for name in PACKAGES},
            "attributes": {name: to_json(value, name) for name, value in attributes.items()},
        }
        weights = {name: _to_save(name, value) for name, value in self.module.state_dict().items()}
        n_bytes = sum(value.nbytes for value in weights.values())
        if save_anndata and "compression" not in anndata_write_kwargs:
            n_bytes += size_of(self.adata)

        folder.mkdir(parents=True, exist_ok=True)
        description = folder / f"{prefix}model.json"
        check_can_write(description, n_bytes)
        files = {"weights": _write_new(folder, f"{prefix}model", ".safetensors", lambda path: save_file(weights, path))}
        if save_anndata:
            # The functions: the methods of data in a file would have it read on from the copy.
            is_mudata = isinstance(self.adata, MuData)
            name, suffix, write = ("mdata", ".h5mu", write_h5mu) if is_mudata else ("adata", ".h5ad", write_h5ad)
            copy = lambda path: write(path, self.adata, **anndata_write_kwargs)
            files["data"] = _write_new(folder, f"{prefix}{name}", suffix, copy)
        content["files"] = files
        outer = {"format": FORMAT, "version": FORMAT_VERSION, "checksum": _checksum(content), "content": content}
        with replacing(description) as beside:
            beside.write_text(json.dumps(outer, indent=1, allow_nan=False), encoding="utf-8")
        # From here on it is the new model. What belonged to the old one, or to a save that was killed, goes.
        used = {file["name"] for file in files.values()}
        for path in _pieces(folder, prefix):
            if path.name not in used:
                path.unlink(missing_ok=True)
        card = folder / f"{prefix}README.md"
        if not card.exists() or MADE_BY in card.read_text(encoding="utf-8", errors="replace"):
            with replacing(card) as beside:
                beside.write_text(model_card(self, prefix), encoding="utf-8")

    @classmethod
    def load(
        cls,
        dir_path: str | Path,
        adata: AnnData | MuData | Literal[False] | None = None,
        accelerator: str = "auto",
        device: int | str = "auto",
        prefix: str | None = None,
        backup_url: str | None = None,
        datamodule: None = None,
        allowed_classes_names_list: list[str] | None = None,
        *,
        allow_pickle: bool = False,
    ) -> Self:
        """Load a saved model.

        Parameters
        ----------
        dir_path
            Folder that the model was saved to.
        adata
            Data for the model; ``None``: the data saved with it; ``False``: none.
        accelerator, device
            Where to put the model; by default on a GPU where there is one.
        prefix
            Of the names of the files.
        backup_url
            Where to fetch a ``model.pt`` from that is not in the folder.
        datamodule
            Of scvi-tools; must be ``None``.
        allowed_classes_names_list
            Names of other classes that the model may have been saved from.
        allow_pickle
            Also load a ``model.pt``, as versions before 0.2 and scvi-tools write it. Such a file can run any code when it
            is loaded: only if you trust who made it.

        Returns
        -------
        The model.

        Examples
        --------
        >>> model.save("my_model", overwrite=True)
        >>> import sccountsdiff
        >>> sccountsdiff.CountsDiffImputer.load("my_model", adata=False).is_trained
        True
        """
        if datamodule is not None:
            raise TypeError("`datamodule` must be None: the model trains on the data that it is loaded with.")
        refuse_other_types(None if adata is False else adata)
        refuse_mps(accelerator)
        where = torch_device(accelerator, device)
        saved = read_model(dir_path, prefix, allow_pickle=allow_pickle, backup_url=backup_url)
        registry = saved.attributes.pop("registry_")
        if model_name(registry) not in (None, cls.__name__, *(allowed_classes_names_list or [])):
            raise ValueError(f"{dir_path} holds a model of the class {model_name(registry)}, not {cls.__name__}.")
        if adata is None and saved.data is None:
            warnings.warn(f"No data was saved with the model in {dir_path}: it has none.", stacklevel=2)
        elif adata is None:
            adata = read_h5mu(saved.data) if is_mudata_setup(registry) else read_h5ad(saved.data)
        adata = None if adata is False else adata
        if adata is not None:
            # The same way in for saved and for new data: it is checked against what the model knows.
            set_up: Callable = cls.setup_mudata if is_mudata_setup(registry) else cls.setup_anndata
            set_up(adata, source_registry=registry, **setup_args(registry))
        init = saved.attributes.pop("init_params_")
        model = cls(adata, registry=registry, **init["non_kwargs"], **init["kwargs"].get("backbone_kwargs", {}))
        for name, value in saved.attributes.items():
            setattr(model, name, value)
        try:
            model.module.load_state_dict(saved.weights)
        except RuntimeError as error:
            first = str(error).splitlines()[1:2] or [str(error)]
            raise ValueError(f"The weights in {dir_path} are not those of such a model: {first[0].strip()}") from None
        model.to_device(where)
        model.module.eval()
        return model

    @staticmethod
    def load_registry(dir_path: str | Path, prefix: str | None = None) -> dict:
        """What a saved model knows of the data that it was set up with.

        Parameters
        ----------
        dir_path
            Folder that the model was saved to.
        prefix
            Of the names of the files.

        Returns
        -------
        The registry of scvi-tools.

        Examples
        --------
        >>> model.save("my_model", overwrite=True)
        >>> model.load_registry("my_model")["setup_args"]["zeros"]
        'observed'
        """
        return read_model(dir_path, prefix).attributes["registry_"]

    @staticmethod
    def view_setup_args(dir_path: str | Path, prefix: str | None = None) -> None:
        """Print the arguments with which the data of a saved model was set up.

        Parameters
        ----------
        dir_path
            Folder that the model was saved to.
        prefix
            Of the names of the files.

        Examples
        --------
        >>> model.save("my_model", overwrite=True)
        >>> model.view_setup_args("my_model")  # doctest: +ELLIPSIS
        <BLANKLINE>
        ...
        """
        AnnDataManager.view_setup_method_args(SavingMixin.load_registry(dir_path, prefix))


def read_model(
    dir_path: str | Path, prefix: str | None = None, *, allow_pickle: bool = False, backup_url: str | None = None
) -> SavedModel:
    """Read a saved model, checked as far as that can be done without making one.

    Parameters
    ----------
    dir_path
        Folder that the model was saved to.
    prefix
        Of the names of the files.
    allow_pickle
        Also read a ``model.pt``, which can run code.
    backup_url
        Where to fetch a ``model.pt`` from that is not in the folder.

    Returns
    -------
    Attributes (settings, registry, history), weights, and where the data is, if any was saved.

    Examples
    --------
    >>> model.save("my_model", overwrite=True)
    >>> read_model("my_model").attributes["is_trained_"]
    True
    """
    folder, prefix = Path(dir_path), _check_prefix(prefix)
    description, pickled = folder / f"{prefix}model.json", folder / f"{prefix}model.pt"
    if description.is_file():
        return _read_described(description)
    if allow_pickle and backup_url is not None:
        download(backup_url, str(folder), pickled.name)
    if not pickled.is_file():
        what = f"it holds no {description.name}" if folder.is_dir() else "there is no such folder"
        raise FileNotFoundError(f"No saved model in {str(dir_path)!r}: {what}.")
    if not allow_pickle:
        raise ValueError(
            f"{pickled} can run any code when it is loaded. If you trust who made it, load it with `allow_pickle=True`, and "
            "save it again: what is saved now holds nothing that runs."
        )
    return _read_pickled(pickled)


def _read_described(description: Path) -> SavedModel:
    folder = description.parent
    content = _read_json(description)
    try:
        attributes = {name: from_json(value) for name, value in content["attributes"].items()}
        files = {what: (folder / _plain_name(file["name"]), file["sha256"]) for what, file in content["files"].items()}
        saved = SavedModel(attributes, {}, None)
        _check_attributes(attributes)
        weights, data = files["weights"], files.get("data", (None, None))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else error
        raise ValueError(f"{description} cannot be read as a model: {reason}.") from None
    for path, digest in (weights, data):
        if path is None:
            continue
        if not path.is_file():
            raise FileNotFoundError(f"{path}, which belongs to the model, is missing.")
        if digest_of_file(path) != digest:
            raise ValueError(f"{path} is damaged: it does not hold what was saved (its checksum is another one).")
    try:
        return saved._replace(weights=load_file(weights[0]), data=data[0])
    except SafetensorError as error:
        raise ValueError(f"{weights[0]} does not hold weights: {error}.") from None


def _read_json(path: Path) -> dict[str, Any]:
    """The content of a description; an error tells one that is damaged from one that is not ours."""
    try:
        outer = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged, or was not written by sccountsdiff: it is not JSON ({error}).") from None
    if not isinstance(outer, dict) or outer.get("format") != FORMAT:
        raise ValueError(f"{path} is not a model of sccountsdiff: its format is not {FORMAT!r}.")
    if outer.get("version") != FORMAT_VERSION:
        raise ValueError(
            f"{path} has version {outer.get('version')!r} of the format, but this sccountsdiff reads {FORMAT_VERSION}: "
            "install the version that saved it, or a newer one."
        )
    content = outer.get("content")
    if not isinstance(content, dict) or _checksum(content) != outer.get("checksum"):
        raise ValueError(f"{path} is damaged: it does not hold what was saved (its checksum is another one).")
    return content


def _read_pickled(path: Path) -> SavedModel:
    try:
        content = torch.load(path, map_location="cpu", weights_only=False)
    except (AttributeError, ImportError) as error:
        raise ValueError(
            f"{path} needs a class that is not defined here: {error}. Import or define it first."
        ) from None
    except (EOFError, KeyError, OSError, RuntimeError, ValueError, pickle.UnpicklingError) as error:
        raise ValueError(f"{path} is damaged, or not a saved model: {error}.") from None
    try:
        attributes, weights = dict(content["attr_dict"]), dict(content["model_state_dict"])
        weights.pop("pyro_param_store", None)
        _check_attributes(attributes)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not a model of sccountsdiff: {error}.") from None
    name = "mdata.h5mu" if is_mudata_setup(attributes["registry_"]) else "adata.h5ad"
    data = path.with_name(path.name.removesuffix("model.pt") + name)
    return SavedModel(attributes, weights, data if data.is_file() else None)


def _check_attributes(attributes: Mapping[str, Any]) -> None:
    """Refuse attributes that no model has: they are set on the one that is loaded."""
    for name in ("registry_", "init_params_"):
        if not isinstance(attributes.get(name), dict):
            raise ValueError(f"it has no {name!r}")
    for name in attributes:
        if not (name.isidentifier() and name.endswith("_") and not name.startswith("_")):
            raise ValueError(f"it has an attribute {name!r}")
    setup_args(attributes["registry_"])
    for name in ("kwargs", "non_kwargs"):
        dict(attributes["init_params_"][name])


def _write_new(folder: Path, stem: str, suffix: str, write: Callable[[Path], object]) -> dict[str, str]:
    """Write a file that was not there before; its name and its checksum."""
    path = folder / f"{stem}-{uuid4().hex[:8]}{suffix}"
    with replacing(path) as beside:
        try:
            write(beside)
        except SafetensorError as error:  # of a full disk
            raise OSError(str(error)) from None
    return {"name": path.name, "sha256": digest_of_file(path)}


def _pieces(folder: Path, prefix: str) -> list[Path]:
    """All files in the folder that this model, or an earlier one that it has replaced, consists of, but for the JSON."""
    endings = r"model\.pt|model-[0-9a-f]{8}\.safetensors|adata-[0-9a-f]{8}\.h5ad|mdata-[0-9a-f]{8}\.h5mu"
    name = re.compile(rf"{re.escape(prefix)}({endings})")
    return [path for path in folder.iterdir() if name.fullmatch(path.name)]


def _only_leftovers(folder: Path, prefix: str) -> bool:
    """Whether there is nothing in a folder, or only what a first save that was killed has left there."""
    if not folder.is_dir():
        return False
    remove_leftovers(folder)
    left = [path for path in _pieces(folder, prefix) if path.name != f"{prefix}model.pt"]
    return set(left) == set(folder.iterdir())


def _check_prefix(prefix: str | None) -> str:
    prefix = prefix or ""
    if Path(prefix + "x").name != prefix + "x":
        raise ValueError(f"`prefix` must be the beginning of the name of a file, not {prefix!r}.")
    return prefix


def _plain_name(name: str) -> str:
    """The name of a file in the same folder; nothing that leads out of it."""
    if not isinstance(name, str) or name in ("", ".", "..") or "/" in name or "\\" in name or ":" in name:
        raise ValueError(f"{name!r} is not the name of a file beside it")
    return name


def _to_save(name: str, value: object) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"The state of the module has {name!r}, a {type(value).__name__}: only tensors can be saved.")
    return value.detach().to("cpu", copy=True).contiguous()  # a copy each: weights may be shared


def _checksum(content: dict) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def refuse_other_types(adata: object) -> None:
    """Refuse what is no data of scverse."""
    if not isinstance(adata, AnnData | MuData | None):
        raise TypeError(f"`adata` must be an AnnData or a MuData, not {type(adata).__name__}.")


def refuse_mps(accelerator: str) -> None:
    """Refuse Apple's GPUs. To Lightning, "gpu" is one where there is one."""
    if accelerator == "mps" or (accelerator == "gpu" and torch.backends.mps.is_available()):
        raise ValueError("PyTorch cannot draw binomials on Apple GPUs (mps): use the CPU.")
