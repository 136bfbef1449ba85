"""The model card says what is true of the model, and nothing that is in its data becomes markup."""

from __future__ import annotations

import numpy as np
import pytest

from sccountsdiff import CountsDiffImputer
from sccountsdiff.model.card import MADE_BY, model_card


def test_it_says_what_the_model_knows_and_how_it_was_trained(trained, saved):
    card = model_card(trained)
    losses = trained.history["validation_loss"].to_numpy(float).ravel()
    assert "- genes: 20 (`gene0`, " in card
    assert "`cell_type`: 3 categories (`B`, `NK`, `T`)" in card and "- continuous covariates: `age`" in card
    assert "- trained on 324 cells, 36 cells held out" in card and "- epochs: 60" in card
    assert f"- loss on the cells held out: {losses.min():.5g} in epoch " in card
    assert (saved / "README.md").read_text() == card and card.startswith("---\nlibrary_name: sccountsdiff\n")


def test_the_epoch_is_the_one_with_the_best_loss(trained):
    table = trained.history["validation_loss"]
    best = table.index[int(table.to_numpy(float).argmin())]
    assert f"in epoch {best}, whose weights these are" in model_card(trained)


def test_untrained(simulate):
    model = CountsDiffImputer(simulate(30).adata, n_hidden=4, n_layers=1)
    card = model_card(model, prefix="first_")
    assert "It is not trained." in card and "prefix='first_'" in card and "n_hidden=`4`" in card


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "a`b", "line\nbreak", "[x](http://y)", ""])
def test_names_are_shown_as_they_are(simulate, name):
    adata = simulate(30).adata
    adata.obs["group"] = np.resize([name, "other"], 30)
    CountsDiffImputer.setup_anndata(adata, categorical_covariate_keys=["group"])
    card = model_card(CountsDiffImputer(adata, n_hidden=4, n_layers=1))
    (line,) = [line for line in card.splitlines() if line.startswith("- categorical")]
    assert line.count("`") % 2 == 0 and "`other`" in line
    outside = "".join(line.split("`")[::2])
    assert not set("<[") & set(outside)
    assert MADE_BY in card
