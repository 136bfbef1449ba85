"""The rows are as large as the authors', and the table says so."""

import pytest
from torch import nn

from sccountsdiff.benchmark.paper import FETUS, HEART, ROWS, Budget, settings_table
from sccountsdiff.benchmark.paper.settings import PUBLISHED, n_parameters, stand_in, training_of, untrained


@pytest.fixture(scope="module", params=[FETUS, HEART], ids=["fetus", "heart"])
def table(request):
    return settings_table(request.param)


def test_networks_have_the_size_of_the_authors(table):
    sizes = table["parameters"]
    known = sizes[sizes["paper"] != ""].replace(",", "", regex=True).astype(int)
    assert {"ReMDM", "CountsDiff", "Blackout", "xTrimoGene", "scGPT (scratch)", "scIDPMs", "GAIN"} <= set(known.index)
    assert ((known["ours"] / known["paper"]).sub(1).abs() < 0.1).all(), known


def test_countsdiff_is_smaller_than_remdm_by_its_output_layer(table):
    """The paper has half as many parameters (fetus) and a quarter (heart), for the largest counts of the atlases."""
    ours = table["parameters"]["ours"].str.replace(",", "")
    assert int(ours["CountsDiff"]) < 0.8 * int(ours["ReMDM"])


def test_training_is_that_of_the_authors(table):
    same = table[table["batch"]["paper"] != ""]
    for name in same.index.drop("xTrimoGene"):  # which adds batches up
        assert table.loc[name, ("batch", "ours")] == table.loc[name, ("batch", "paper")], name
    trained = same.index
    assert (same["learning rate"]["ours"] == same["learning rate"]["paper"]).all(), same.loc[trained, "learning rate"]
    assert table.loc["GAIN", ("steps", "ours")] == "10,000"


def test_all_that_differs_is_said(table):
    assert list(table.index) == [row.name for row in ROWS] == list(PUBLISHED)
    differs = table["differs"].squeeze()
    assert (differs[table["inputs"]["ours"].squeeze() != ""].drop("Zero imputation") != "").all()


def test_untrained_networks_and_steps():
    budget, cells = Budget(HEART, 10_000), stand_in(30, HEART)
    zero, *_, countsdiff = (row.method(budget) for row in ROWS)
    assert untrained(zero, cells) is None and training_of(zero, 8000) is None
    assert n_parameters(untrained(countsdiff, cells)) > 3 * 12 * 128**2
    steps, batch_size, _ = training_of(countsdiff, budget.n_training)
    assert 50_000 <= steps < 50_000 + 16 and batch_size == 512
    frozen = nn.Linear(3, 2).requires_grad_(False)
    assert n_parameters(frozen) == 0
