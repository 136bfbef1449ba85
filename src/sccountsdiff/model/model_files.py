"""The files of a saved model: weights as safetensors, all else as JSON. Nothing in them can be run.

The JSON file names the files that belong to it, with their checksums, and is written last. Files that it names are never
written to: another save makes new ones, and the old ones go once the JSON file names the new. At every moment, whatever
happens, the folder holds the old model or the new one.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from scvi import REGISTRY_KEYS

from sccountsdiff.compat import field_state, setup_args
from sccountsdiff.files import check_can_write, digest_of_file, remove_leftovers, replacing, write_text
from sccountsdiff.model.json_values import from_json, to_json

FORMAT = "sccountsdiff model"
FORMAT_VERSION = 1
PACKAGES = ("sccountsdiff", "anndata", "numpy", "safetensors", "scvi-tools", "torch")
"""Packages whose versions are noted."""


class SavedModel(NamedTuple):
    """What a saved model consists of."""

    attributes: dict[str, Any]
    weights: dict[str, torch.Tensor]
    data: Path | None


class DataWriter(NamedTuple):
    """How the data that is saved with a model is written."""

    stem: str
    suffix: str
    write: Callable[[Path], object]
    n_bytes: int
    """Size that it will have, as far as that is known."""


def write_files(
    folder: Path,
    prefix: str,
    model_class: str,
    attributes: Mapping[str, Any],
    state: Mapping[str, Any],
    data: DataWriter | None = None,
) -> None:
    """Save a model in place of the one that is there, if any.

    Parameters
    ----------
    folder
        Where to; made if it does not exist.
    prefix
        Of the names of all files.
    model_class
        Name of the class of the model.
    attributes
        Settings, registry, history.
    state
        Weights and buffers by name.
    data
        How to write the data, if it is to be saved too.
    """
    content = {
        "class": model_class,
        "versions": {name: _version(name) for name in PACKAGES},
        "attributes": {name: to_json(value, name) for name, value in attributes.items()},
    }
    weights = {name: _to_save(name, value) for name, value in state.items()}
    folder.mkdir(parents=True, exist_ok=True)
    path = description(folder, prefix)
    check_can_write(path, sum(value.nbytes for value in weights.values()) + (0 if data is None else data.n_bytes))
    files = {"weights": _write_new(folder, f"{prefix}model", ".safetensors", lambda path: save_file(weights, path))}
    if data is not None:
        files["data"] = _write_new(folder, f"{prefix}{data.stem}", data.suffix, data.write)
    content["files"] = files
    outer = {"format": FORMAT, "version": FORMAT_VERSION, "checksum": checksum(content), "content": content}
    write_text(path, json.dumps(outer, indent=1, allow_nan=False))
    # From here on it is the new model. What belonged to the old one, or to a save that was killed, goes.
    used = {file["name"] for file in files.values()}
    for piece in _pieces(folder, prefix):
        if piece.name not in used:
            piece.unlink(missing_ok=True)


def read_files(path: Path) -> SavedModel:
    """Read a saved model, checked as far as that can be done without making one.

    Parameters
    ----------
    path
        Its JSON file.

    Returns
    -------
    Attributes (settings, registry, history), weights, and where the data is, if any was saved.
    """
    folder = path.parent
    content = _read_json(path)
    try:
        attributes = {name: from_json(value) for name, value in content["attributes"].items()}
        files = {what: (folder / _plain_name(file["name"]), file["sha256"]) for what, file in content["files"].items()}
        saved = SavedModel(attributes, {}, None)
        check_attributes(attributes)
        weights, data = files["weights"], files.get("data", (None, None))
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else error
        raise ValueError(f"{path} cannot be read as a model: {reason}.") from None
    for file, digest in (weights, data):
        if file is None:
            continue
        if not file.is_file():
            raise FileNotFoundError(f"{file}, which belongs to the model, is missing.")
        if digest_of_file(file) != digest:
            raise ValueError(f"{file} is damaged: it does not hold what was saved (its checksum is another one).")
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
    if not isinstance(content, dict) or checksum(content) != outer.get("checksum"):
        raise ValueError(f"{path} is damaged: it does not hold what was saved (its checksum is another one).")
    return content


def check_attributes(attributes: Mapping[str, Any]) -> None:
    """Refuse attributes that no model has: they are set on the one that is loaded, or are arguments of it."""
    for name in ("registry_", "init_params_"):
        if not isinstance(attributes.get(name), dict):
            raise ValueError(f"it has no {name!r}")
    for name in attributes:
        if not (name.isidentifier() and name.endswith("_") and not name.startswith("_")):
            raise ValueError(f"it has an attribute {name!r}")
    registry, init = attributes["registry_"], attributes["init_params_"]
    for given, taken in (
        ([setup_args(registry)], ("adata", "mdata", "source_registry")),
        ([init["non_kwargs"], init["kwargs"].get("backbone_kwargs", {})], ("adata", "registry")),
    ):
        names = [*taken, *(name for arguments in given for name in dict(arguments))]
        if len(set(names)) < len(names):
            raise ValueError("it has an argument twice")
    field_state(registry, REGISTRY_KEYS.X_KEY)["column_names"]
    dict(field_state(registry, REGISTRY_KEYS.CAT_COVS_KEY).get("mappings", {}))


def description(folder: str | Path, prefix: str) -> Path:
    """The JSON file of a model.

    Examples
    --------
    >>> description("my_model", "first_").name
    'first_model.json'
    """
    return Path(folder, f"{prefix}model.json")


def check_prefix(prefix: str | None) -> str:
    """The beginning of the names of files; an error if it leads to another folder."""
    prefix = prefix or ""
    if Path(prefix + "x").name != prefix + "x":
        raise ValueError(f"`prefix` must be the beginning of the name of a file, not {prefix!r}.")
    return prefix


def only_leftovers(folder: Path, prefix: str) -> bool:
    """Whether there is nothing in a folder, or only what a first save that was killed has left there."""
    if not folder.is_dir():
        return False
    remove_leftovers(folder)
    left = [path for path in _pieces(folder, prefix) if path.name != f"{prefix}model.pt"]
    return set(left) == set(folder.iterdir())


def _pieces(folder: Path, prefix: str) -> list[Path]:
    """All files in the folder that this model, or an earlier one that it has replaced, consists of, but for the JSON."""
    endings = r"model\.pt|model-[0-9a-f]{8}\.safetensors|adata-[0-9a-f]{8}\.h5ad|mdata-[0-9a-f]{8}\.h5mu"
    name = re.compile(rf"{re.escape(prefix)}({endings})")
    return [path for path in folder.iterdir() if name.fullmatch(path.name)]


def _write_new(folder: Path, stem: str, suffix: str, write: Callable[[Path], object]) -> dict[str, str]:
    """Write a file that was not there before; its name and its checksum."""
    path = folder / f"{stem}-{uuid4().hex[:8]}{suffix}"
    with replacing(path) as beside:
        try:
            write(beside)
        except SafetensorError as error:  # of a full disk
            raise OSError(str(error)) from None
    return {"name": path.name, "sha256": digest_of_file(path)}


def _plain_name(name: str) -> str:
    """The name of a file in the same folder; nothing that leads out of it."""
    if not isinstance(name, str) or name in ("", ".", "..") or "/" in name or "\\" in name or ":" in name:
        raise ValueError(f"{name!r} is not the name of a file beside it")
    return name


def _to_save(name: str, value: object) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"The state of the module has {name!r}, a {type(value).__name__}: only tensors can be saved.")
    return value.detach().to("cpu", copy=True).contiguous()  # a copy each: weights may be shared


def checksum(content: dict) -> str:
    """That of a description: it does not depend on how it is laid out."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
