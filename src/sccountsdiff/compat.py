"""The only file that knows names which scvi-tools keeps to itself, and what versions of anndata do otherwise."""

from __future__ import annotations

# `view_anndata_setup` of scvi-tools calls rich.pretty without importing it; older versions of rich did so themselves.
import rich.pretty  # noqa: F401
import scvi
import torch
from anndata import AnnData
from scvi.data._constants import (
    _FIELD_REGISTRIES_KEY,
    _MODEL_NAME_KEY,
    _SETUP_ARGS_KEY,
    _SETUP_METHOD_NAME,
    _STATE_REGISTRY_KEY,
)
from scvi.data._download import _download
from scvi.model._utils import parse_device_args


def set_scvi_seed(seed: int | None) -> None:
    """Set the seed of scvi-tools without its setter, which would also reseed everything else."""
    scvi.settings._seed = seed


def layer_names(adata: AnnData) -> list[str]:
    """Names of the layers; from version 0.13 of anndata on, ``X`` is one too, without a name.

    Examples
    --------
    >>> import sccountsdiff
    >>> layer_names(sccountsdiff.datasets.pbmc68k())
    []
    """
    return [name for name in adata.layers if name is not None]


def setup_args(registry: dict) -> dict:
    """Arguments with which the data was set up."""
    return registry[_SETUP_ARGS_KEY]


def is_mudata_setup(registry: dict) -> bool:
    """Whether the data was set up as MuData."""
    return registry.get(_SETUP_METHOD_NAME) == "setup_mudata"


def model_name(registry: dict) -> str | None:
    """Name of the class that the data was set up for."""
    return registry.get(_MODEL_NAME_KEY)


def torch_device(accelerator: str, device: int | str) -> torch.device:
    """Where a model that is loaded goes, by the rules of scvi-tools."""
    return parse_device_args(accelerator, device, return_device="torch", validate_single_device=True)[-1]


def download(url: str, folder: str, name: str) -> None:
    """Fetch a file, unless it is there."""
    _download(url, folder, name)


def field_state(registry: dict, key: str) -> dict:
    """What the registry remembers of one field; empty if there is no such field."""
    return registry[_FIELD_REGISTRIES_KEY].get(key, {}).get(_STATE_REGISTRY_KEY, {})
