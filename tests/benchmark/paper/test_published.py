import numpy as np
import pandas as pd
import pytest

from sccountsdiff.benchmark.paper import RECIPES, Ablation, compare, published


@pytest.mark.parametrize("name", RECIPES)
def test_tables_have_the_rows_and_metrics_of_their_recipe(name):
    recipe, table = RECIPES[name], published(name)
    metrics = [column.removeprefix("log_") for column in table if f"{column}_se" in table]
    assert metrics == list(recipe.metrics)
    if not isinstance(recipe, Ablation):
        assert table["method"].drop_duplicates().tolist() == [row.name for row in recipe.rows]
        assert not table.duplicated(["method", "n_samples"]).any()


def test_figures_of_the_paper():
    """One of each kind of table, read off the paper."""
    mnar = published("fetus_mnar").set_index(["method", "n_samples"])
    assert mnar.loc[("ReMDM", 5), ["rmse", "log_scfid", "rmse_se"]].tolist() == [0.66, -6.61, 0.01]
    classifier = published("heart_mcar_classifier").set_index(["method", "n_samples"])
    assert classifier.loc[("MAGIC", 1), ["accuracy", "macro_f1"]].tolist() == [0.93, 0.79]
    guidance = published("fetus_guidance").set_index(["schedule", "guidance"])
    assert guidance.loc[("blackout", 3.0), ["scfid", "energy_distance"]].tolist() == [49.45e-4, 11.86e-2]
    attrition = published("fetus_attrition").set_index(["schedule", "attrition"])
    assert attrition.loc[("fisher", 0.005), ["scfid", "scfid_se"]].tolist() == [3.44e-4, 3e-6]


def test_own_figures_are_averaged_and_put_on_the_paper_s_scale():
    common = {
        "dataset": "fetus",
        "protocol": "paper",
        "missingness": "mcar",
        "method": "x",
        "group": "naive",
        "se": 0.1,
    }
    rows = [
        {**common, "row": "ReMDM", "n_samples": n, "seed": seed, "metric": "mmd", "value": value}
        for n, seed, value in [(1, 0, 1.0), (1, 1, 3.0), (5, 0, np.e)]
    ]
    truth = {**common, "row": None, "n_samples": 1, "seed": 0, "metric": "mmd", "value": 9.0}
    table = compare(pd.DataFrame([*rows, truth]), "fetus_mcar")
    assert table.loc[("ReMDM", 1), ("log_mmd", "ours")] == pytest.approx(np.log(2))
    assert table.loc[("ReMDM", 5), ("log_mmd", "ours")] == pytest.approx(1)
    assert table["log_mmd", "ours"].notna().sum() == 2
    assert table.loc[("ReMDM", 5), ("log_mmd", "paper")] == -8.76
    assert list(table.columns.levels[0]) == ["log_mmd"]


def test_unknown_table():
    with pytest.raises(KeyError, match="fetus_mcar"):
        published("fetus")
