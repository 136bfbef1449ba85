"""What scvi-tools notes of a set-up is found again, of data set up by its own means."""

from __future__ import annotations

import mudata
import pytest
from scvi import REGISTRY_KEYS

from sccountsdiff import CountsDiffImputer
from sccountsdiff.compat import field_state, is_mudata_setup, setup_args


@pytest.fixture
def registry(simulate):
    """Return a function that sets up data and gives back what is noted of it."""

    def _registry(as_mudata=False, **kwargs):
        adata = simulate(20).adata
        if as_mudata:
            data = mudata.MuData({"rna": adata})
            CountsDiffImputer.setup_mudata(data, modalities={"layer": "rna"}, **kwargs)
        else:
            data = adata
            CountsDiffImputer.setup_anndata(data, **kwargs)
        return CountsDiffImputer(data, n_hidden=4, n_layers=1).registry_

    return _registry


def test_arguments_of_the_set_up(registry):
    args = setup_args(registry(labels_key="cell_type", zeros="missing"))
    assert args["labels_key"] == "cell_type" and args["zeros"] == "missing"
    assert args["layer"] is None and args["mask_layer"] is None


@pytest.mark.parametrize("as_mudata", [False, True])
def test_kind_of_the_set_up(registry, as_mudata):
    noted = registry(as_mudata)
    assert is_mudata_setup(noted) == as_mudata
    assert setup_args(noted).get("modalities") == ({"layer": "rna"} if as_mudata else None)


def test_fields(registry):
    keys = {"categorical_covariate_keys": ["cell_type"], "continuous_covariate_keys": ["age"]}
    noted = registry(**keys)
    assert list(field_state(noted, REGISTRY_KEYS.X_KEY)["column_names"]) == [f"gene{j}" for j in range(20)]
    assert field_state(noted, REGISTRY_KEYS.CAT_COVS_KEY)["mappings"]["cell_type"].tolist() == ["B", "NK", "T"]
    assert list(field_state(noted, REGISTRY_KEYS.CONT_COVS_KEY)["columns"]) == ["age"]
    assert field_state(noted, "no such field") == {}
