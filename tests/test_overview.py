"""What is said about data and models is what is in them."""

import mudata
import numpy as np
import pytest
import scipy.sparse as sp

from sccountsdiff.overview import describe_data, describe_model, to_text


def test_shares_are_those_of_the_matrix(simulate):
    adata = simulate(50).adata
    dense = adata.X.toarray()
    dense[:10] = np.nan
    adata.layers["incomplete"], adata.layers["mask"] = sp.csr_matrix(dense), np.isfinite(dense)
    adata.layers["half"] = np.nan_to_num(dense) / 2
    matrices = describe_data(adata)["matrices"]
    assert matrices["X"]["zero_share"] == pytest.approx((adata.X.toarray() == 0).mean()) and matrices["X"]["counts"]
    assert matrices["incomplete"]["missing_share"] == pytest.approx(0.2) and matrices["incomplete"]["counts"]
    assert matrices["mask"]["false_share"] == pytest.approx(0.2) and not matrices["half"]["counts"]


def test_columns_and_modalities(simulate):
    adata = simulate(50).adata
    about = describe_data(mudata.MuData({"rna": adata}))
    assert about["kind"] == "MuData" and about["modalities"]["rna"]["cells"] == 50
    adata.obs.loc[adata.obs_names[:3], "age"] = np.nan
    assert describe_data(adata)["obs"] == {"cell_type": "3 categories", "age": "numbers, 3 missing"}


def test_a_model(trained):
    about = describe_model(trained)
    assert about["covariates"] == {"cell_type": ["B", "NK", "T"], "age": "continuous"} and about["genes"] == 20
    assert about["training"]["epochs"] == 60 and about["training"]["train_cells"] == 324
    losses = trained.history["validation_loss"]
    assert about["training"]["best_validation_loss"] == pytest.approx(float(losses.min().iloc[0]))
    assert about["parameters"] == sum(weights.numel() for weights in trained.module.parameters())
    assert about["arguments"]["n_hidden"] == 32 and "best_validation_loss: " in to_text(about)
