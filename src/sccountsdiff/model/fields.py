"""Data as scvi-tools registers it where that is not enough: several modalities, and Dask arrays of sparse chunks."""

from __future__ import annotations

from operator import methodcaller
from typing import Any

import numpy as np
import scipy.sparse as sp
from mudata import MuData
from scvi import REGISTRY_KEYS
from scvi.data import AnnDataManager, AnnDataManagerValidationCheck, fields

from sccountsdiff.data.missing import OBSERVED_KEY
from sccountsdiff.data.modalities import JoinedCounts, KnownFeatures


class JoinedField(fields.LayerField):
    """Counts, or which of them there are, of several modalities of a MuData.

    Parameters
    ----------
    registry_key
        Name of the field.
    joined
        The modalities.
    """

    def __init__(self, registry_key: str, joined: JoinedCounts):
        super().__init__(registry_key, None, is_count_data=False, correct_data_format=False)
        self.joined = joined

    def validate_field(self, adata: MuData) -> None:
        """Nothing is left to check: the set-up did."""

    def register_field(self, adata: MuData) -> dict[str, Any]:
        """What a model has to know of the modalities if it is loaded without data."""
        features = self.joined.features
        state = {"modalities": list(features.names), "n_features": [len(own) for own in features.names.values()]}
        return super().register_field(self.joined.adata) | state | {"prefixed": features.prefixed}

    def transfer_field(self, state_registry: dict, adata_target: MuData, **kwargs) -> dict[str, Any]:
        """The same for the data that a model is loaded with."""
        return super().transfer_field(state_registry, self.joined.adata, **kwargs)


class DaskManager(AnnDataManager):
    """Gives training dense chunks of Dask arrays, which scvi-tools reads as they are."""

    def get_from_registry(self, registry_key: str) -> Any:
        """What is in the data; of sparse chunks, dense ones that are made when they are read."""
        found = super().get_from_registry(registry_key)
        if not sp.issparse(getattr(found, "_meta", None)):
            return found
        return found.map_blocks(methodcaller("toarray"), dtype=found.dtype, meta=np.empty((0, 0), found.dtype))


class JoinedManager(AnnDataManager):
    """Gives training the joined counts.

    Parameters
    ----------
    joined
        The modalities.
    **kwargs
        Of :class:`scvi.data.AnnDataManager`.
    """

    def __init__(self, joined: JoinedCounts, **kwargs):
        checks = AnnDataManagerValidationCheck(check_fully_paired_mudata=False)  # cells may lack modalities
        super().__init__(**kwargs, validation_checks=checks)
        self._joined = joined

    def get_from_registry(self, registry_key: str) -> Any:
        """Counts of all features; the mask, or which cells have each modality; or what is in the MuData."""
        found: dict[str, np.ndarray | sp.csr_matrix] = {
            REGISTRY_KEYS.X_KEY: self._joined.adata.X,
            OBSERVED_KEY: self._joined.mask if self._joined.has_mask else self._joined.present,
        }
        return found[registry_key] if registry_key in found else super().get_from_registry(registry_key)


def known_features(state: dict) -> KnownFeatures | None:
    """Features of each modality from what the registry remembers of the counts; ``None`` if there is but one modality."""
    if "modalities" not in state:
        return None
    names = np.split(np.asarray(state["column_names"]), np.cumsum(state["n_features"])[:-1])
    return KnownFeatures(dict(zip(state["modalities"], names, strict=True)), state["prefixed"])
