"""The only file that knows names which scvi-tools keeps to itself."""

from __future__ import annotations

# `view_anndata_setup` of scvi-tools calls rich.pretty without importing it; older versions of rich did so themselves.
import rich.pretty  # noqa: F401
import scvi
from scvi.data._constants import _FIELD_REGISTRIES_KEY, _SETUP_ARGS_KEY, _SETUP_METHOD_NAME, _STATE_REGISTRY_KEY


def set_scvi_seed(seed: int | None) -> None:
    """Set the seed of scvi-tools without its setter, which would also reseed everything else."""
    scvi.settings._seed = seed


def setup_args(registry: dict) -> dict:
    """Arguments with which the data was set up."""
    return registry[_SETUP_ARGS_KEY]


def is_mudata_setup(registry: dict) -> bool:
    """Whether the data was set up as MuData."""
    return registry.get(_SETUP_METHOD_NAME) == "setup_mudata"


def field_state(registry: dict, key: str) -> dict:
    """What the registry remembers of one field; empty if there is no such field."""
    return registry[_FIELD_REGISTRIES_KEY].get(key, {}).get(_STATE_REGISTRY_KEY, {})
