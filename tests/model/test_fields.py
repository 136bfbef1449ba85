"""What scvi-tools is told of several modalities, and what a model knows again of them."""

from __future__ import annotations

import mudata
import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from scvi import REGISTRY_KEYS

from sccountsdiff.data.missing import OBSERVED_KEY
from sccountsdiff.data.modalities import join_modalities
from sccountsdiff.model.fields import JoinedField, JoinedManager, known_features


@pytest.fixture
def mdata():
    cells = pd.DataFrame(index=["a", "b", "c"])
    rna = AnnData(np.ones((3, 2)), obs=cells, var=pd.DataFrame(index=["g", "h"]))
    prot = AnnData(np.full((2, 1), 7.0), obs=cells[1:], var=pd.DataFrame(index=["g"]))
    return mudata.MuData({"rna": rna, "prot": prot})


@pytest.fixture
def manager(mdata):
    joined = join_modalities(mdata, ["rna", "prot"])
    fields = [JoinedField(REGISTRY_KEYS.X_KEY, joined), JoinedField(OBSERVED_KEY, joined)]
    manager = JoinedManager(joined, fields=fields, setup_method_args={})
    manager.register_fields(mdata)
    return manager


def test_training_reads_the_joined_counts_and_who_has_them(manager):
    np.testing.assert_array_equal(manager.get_from_registry(REGISTRY_KEYS.X_KEY), [[1, 1, 0], [1, 1, 7], [1, 1, 7]])
    assert manager.get_from_registry(OBSERVED_KEY).tolist() == [[True, False], [True, True], [True, True]]
    batch = manager.create_torch_dataset()[[2, 0]]
    np.testing.assert_array_equal(batch[REGISTRY_KEYS.X_KEY], [[1, 1, 7], [1, 1, 0]])


def test_counts_stay_out_of_the_data(manager, mdata):
    assert set(mdata.mod) == {"rna", "prot"} and set(mdata.obsm) <= {"rna", "prot"}


def test_a_model_knows_features_again(manager, mdata):
    state = manager.get_state_registry(REGISTRY_KEYS.X_KEY)
    known, joined = known_features(dict(state)), join_modalities(mdata, ["rna", "prot"])
    assert known.prefixed and {name: own.tolist() for name, own in known.names.items()} == {
        "rna": ["rna:g", "rna:h"],
        "prot": ["prot:g"],
    }
    assert {name: own.tolist() for name, own in joined.features.names.items()} == {
        name: own.tolist() for name, own in known.names.items()
    }
    assert known_features({"column_names": ["g"]}) is None
