import json
from dataclasses import replace

import pandas as pd
import pytest

from sccountsdiff.benchmark import paper
from sccountsdiff.benchmark.baselines import CountsDiffPaper
from sccountsdiff.benchmark.metrics import frechet
from sccountsdiff.benchmark.paper import recipes, rows
from sccountsdiff.benchmark.paper.atlases import load_fetus

FAST = {"n_bootstrap": 0, "silent": True}


@pytest.fixture
def calls(monkeypatch):
    """What is handed to the runner, which is not run."""
    found = []

    def stand_in(dataset, **options):
        found.append({"dataset": dataset, **options})
        return pd.DataFrame({"method": []})

    monkeypatch.setattr(recipes, "run", stand_in)
    monkeypatch.setattr(recipes, "choose_settings", lambda dataset, methods, **_: {m.name: m for m in methods})
    return found


@pytest.fixture
def few_steps(monkeypatch):
    monkeypatch.setattr(rows, "FEWEST_STEPS", 2)


@pytest.fixture
def short_trainings(few_steps, monkeypatch):
    """One epoch of each method that has epochs, and few steps of sampling; all else as in the paper."""
    make, embedder = rows.Row.method, frechet.train_embedder

    def method(row, budget):
        made = make(row, budget)
        short = {"max_epochs": 1, "n_steps": 2, "n_resamples": 1, "n_levels": 4, "n_t": 3, "n_trees": 2}
        return replace(made, **{name: value for name, value in short.items() if getattr(made, name, None) is not None})

    monkeypatch.setattr(rows.Row, "method", method)
    monkeypatch.setattr(frechet, "train_embedder", lambda train, **options: embedder(train, **options, max_epochs=1))


@pytest.mark.slow
@pytest.mark.parametrize("name", paper.RECIPES)
def test_every_recipe_runs_to_its_end(name, short_trainings, fetus_file, heart_file, released, tmp_path):
    """All rows with all metrics, from the file; none is refused, and none is run again."""
    recipe, heart = paper.RECIPES[name], name.startswith("heart")
    file, columns = (heart_file, {"age": "age_group"}) if heart else (fetus_file, None)
    options = {"scale": 1e-5, "columns": columns, "gene_column": "feature_name", "weights": released.folder}
    options |= {"n_bootstrap": 2, "silent": True}
    table = recipe(file, tmp_path, **options)
    assert table["error"].isna().all(), table[["method", "error"]].drop_duplicates().to_dict("records")
    scored = table.dropna(subset=["row"]) if "row" in table else table  # the truth has no row
    assert set(scored["metric"]) == set(recipe.metrics) and scored["value"].notna().all()
    side_by_side = paper.compare(table, name).xs("ours", axis=1, level=1)
    columns = [metric for metric in side_by_side if not metric.startswith("log_")]  # a distance may be 0
    assert side_by_side[columns].notna().all(axis=None), "rows of the paper without one of ours"
    again = recipe(file, tmp_path, **options)
    pd.testing.assert_frame_equal(again, table)


@pytest.mark.parametrize("name", ["fetus_mcar", "fetus_mnar", "heart_mcar"])
def test_full_size_is_the_paper_s(calls, fetus_file, heart_file, name):
    heart = name.startswith("heart")
    file, columns = (heart_file, {"age": "age_group"}) if heart else (fetus_file, None)
    paper.RECIPES[name](file, columns=columns, rows=["Zero imputation", "CountsDiff"])
    (call,) = calls
    assert call["n_genes"] == (500 if heart else 1000)
    assert call["min_cells"] == (25 if heart else 3)  # 100,000 of all cells of the atlas, for 120 cells
    assert call["protocol"] == "paper" and call["n_bootstrap"] == 10
    assert call["bootstrap_cells"] == (20_000 if heart else 50_000)
    assert repr(call["missingness"]).startswith(
        "MNARLow(rate=0.25, slack=0.1, window=5000" if name == "fetus_mnar" else "MCAR(rate=0.5"
    )
    assert [method.name for method in call["methods"]] == ["zero", "countsdiff_paper"]
    assert set(call["metrics"]) >= {"rmse", "spearman", "scfid", "mmd", "sliced_wasserstein"}


def test_scale_shrinks_cells_genes_and_steps(calls, fetus_file, monkeypatch):
    monkeypatch.setattr(recipes, "FEWEST_CELLS", 10)
    data = load_fetus(fetus_file)
    for scale in (1, 0.5):
        paper.fetus_mcar(data, scale=scale, rows=["CountsDiff"], seeds=[3])
    full, half = calls
    assert (full["n_cells"], half["n_cells"]) == (120, 60)
    assert (full["n_genes"], half["n_genes"]) == (1000, 500)
    assert (full["methods"][0].max_epochs, half["methods"][0].max_epochs) == (100_000, 50_000)
    assert half["seeds"] == [3]


def test_the_window_is_as_large_a_share_of_fewer_cells(calls, fetus_file):
    paper.fetus_mnar(fetus_file, scale=0.1, rows=["Zero imputation"])
    assert calls[0]["missingness"].window == 500


def test_settings_are_chosen_on_validation_cells(fetus_file, monkeypatch):
    """Of the rows that the paper tuned, and of these alone; no test cell is among them."""
    asked, scored = [], []

    def choose(dataset, methods, **options):
        asked.append({"methods": [method.name for method in methods], **options})
        return {method.name: replace(method, **options["grids"][method.name][1]) for method in methods}

    monkeypatch.setattr(recipes, "choose_settings", choose)
    monkeypatch.setattr(
        recipes, "run", lambda dataset, **options: scored.append(options) or pd.DataFrame({"method": []})
    )
    names = ["Zero imputation", "ReMDM", "CountsDiff", "Blackout"]
    paper.fetus_mcar(fetus_file, scale=1e-5, rows=names, seeds=[3, 4])
    (call,) = asked
    assert call["methods"] == ["remdm", "countsdiff_paper"] and call["seed"] == [3, 4]
    assert call["protocol"] == "paper" and call["validation_share"] == pytest.approx(1 / 9)
    assert [method.n_steps for method in scored[0]["methods"][1:]] == [9, 19, 9]
    paper.fetus_mcar(fetus_file, scale=1e-5, rows=names, tune=False)
    assert len(asked) == 1 and scored[1]["methods"][1].n_steps == 19


def test_forest_diffusion_takes_its_time_if_asked(calls, fetus_file):
    for allowed in (False, True):
        paper.fetus_mcar(fetus_file, rows=["Forest-Diffusion"], allow_slow=allowed)
    assert [call["methods"][0].allow_slow for call in calls] == [False, True]


HOURS = ["fit_hours", "impute_hours"]


def test_estimates_grow_with_the_scale():
    half, full = (paper.heart_mcar.estimates(scale=scale, rows=["ReMDM", "GAIN"], speed=1e12) for scale in (0.5, 1))
    assert (full.loc["ReMDM", HOURS] > 2 * half.loc["ReMDM", HOURS]).all() and full["memory_gb"].gt(
        3 * half["memory_gb"]
    ).all()
    faster = paper.heart_mcar.estimates(rows=["ReMDM"], speed=2e12)
    assert faster.loc["ReMDM", "fit_hours"] == pytest.approx(full.loc["ReMDM", "fit_hours"] / 2, rel=0.1)
    with pytest.raises(ValueError, match="scale"):
        paper.heart_mcar.estimates(scale=2)


def test_methods_that_cannot_run_are_recorded(fetus_file, tmp_path):
    """Weights that nobody gave do not stop the other rows."""
    names = ["Mean imputation", "Conditional Mean", "scGPT (pretrained)"]
    table = paper.fetus_mcar(fetus_file, tmp_path, scale=0.001, rows=names, metrics=["rmse"], **FAST)
    assert table["row"].tolist() == names and set(table["protocol"]) == {"paper"}
    failed = table.set_index("row").loc["scGPT (pretrained)"]
    assert "weights" in failed["error"] and pd.isna(failed["metric"])
    saved = pd.read_csv(tmp_path / "results.csv")
    assert saved["row"].tolist() == names
    again = paper.fetus_mcar(fetus_file, tmp_path, scale=0.001, rows=names, metrics=["rmse"], **FAST)
    assert again["fit_seconds"].tolist() == table["fit_seconds"].tolist()  # found, not run again


def test_countsdiff_in_the_paper_s_setting_runs(fetus_file, few_steps):
    table = paper.fetus_mcar_classifier(fetus_file, scale=1e-5, rows=["CountsDiff"], n_samples=1, tune=False, **FAST)
    assert table["error"].isna().all()
    ours = table[table["row"] == "CountsDiff"].set_index("metric")["value"]
    assert ours.between(0, 1).all() and set(ours.index) == {"accuracy", "macro_f1"}
    assert table.loc[table["row"].isna(), "method"].tolist() == ["truth"] * 2


def test_ablation(fetus_file, few_steps):
    table = paper.fetus_steps(fetus_file, scale=1e-5, values=[2, 1], metrics=["energy_distance"], **FAST)
    assert table["n_steps"].tolist() == [2, 1] and table["error"].isna().all()
    side_by_side = paper.compare(table, "fetus_steps")
    assert side_by_side.loc[1, ("energy_distance", "paper")] == 0.1
    assert side_by_side.loc[1, ("energy_distance", "ours")] == table["value"][1]
    assert side_by_side["energy_distance", "ours"].notna().sum() == 2
    averaged = table.assign(n_samples=5, value=0.0)
    pd.testing.assert_frame_equal(paper.compare(pd.concat([table, averaged]), "fetus_steps"), side_by_side)


def test_ablations_vary_what_the_paper_varies():
    for name, setting in {
        "fetus_attrition": "attrition",
        "fetus_guidance": "guidance",
        "fetus_steps": "n_steps",
    }.items():
        recipe, table = paper.RECIPES[name], paper.published(name)
        assert list(recipe.options["values"]) == table[setting].drop_duplicates().tolist()
        assert recipe.options.get("schedules", ()) == tuple(table.get("schedule", pd.Series(dtype=str)).unique())
        assert (recipe.n_steps, recipe.missingness.rate) == (20_000, 0.4)


def test_ablations_keep_what_the_paper_kept():
    """Rows of the two tables that are the same setting agree within two standard errors, for each schedule."""
    attrition = paper.published("fetus_attrition").set_index(["attrition", "schedule"])
    guidance = paper.published("fetus_guidance").set_index(["guidance", "schedule"])
    (row,) = paper.fetus_attrition._chosen(None)
    method = row.method(rows.Budget(paper.FETUS, 1000))
    one, other = attrition.loc[method.attrition], guidance.loc[method.guidance]
    for metric in paper.fetus_attrition.metrics:
        errors = (one[f"{metric}_se"] ** 2 + other[f"{metric}_se"] ** 2) ** 0.5
        assert ((one[metric] - other[metric]).abs() < 2 * errors).all()


def test_the_paper_counts_points_in_time():
    """Its 20 "steps" are 19, and its row of one step makes none: it has the energy distance of zeros."""
    steps, zeros = paper.published("fetus_steps"), paper.published("fetus_mcar").set_index("method")
    assert rows.N_STEPS in steps["n_steps"].tolist() and steps["n_steps"].min() == 1
    assert zeros.loc["Zero imputation", "energy_distance"] == 1.44 not in steps["energy_distance"].tolist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": 0}, "scale"),
        ({"scale": 2}, "scale"),
        ({"rows": ["Magic"]}, "rows must be"),
        ({"rows": "MAGIC"}, "rows"),
    ],
)
def test_wrong_arguments_are_refused_before_data_are_read(options, message):
    with pytest.raises(ValueError, match=message):
        paper.fetus_mcar("nowhere.h5ad", **options)
    with pytest.raises(ValueError, match="scale|rows"):
        paper.fetus_steps("nowhere.h5ad", **options)


def test_the_choice_is_noted_with_all_scores(fetus_file, few_steps, tmp_path, monkeypatch):
    """Also the models that were chosen from are trained on fewer cells, and share one training."""
    seen = []
    fit = CountsDiffPaper._fit
    monkeypatch.setattr(
        CountsDiffPaper, "_fit", lambda self, cells, seed: seen.append(len(cells)) or fit(self, cells, seed)
    )
    options = {"scale": 1e-5, "rows": ["CountsDiff"], "metrics": ["energy_distance"], "n_samples": 1, **FAST}
    table = paper.fetus_mcar(fetus_file, tmp_path, **options)
    (note,) = tmp_path.glob("tuned_*.json")
    record = json.loads(note.read_text())
    assert len(record["scores"]) == 8 and record["scores"][record["chosen"]] == min(record["scores"].values())
    assert table["method"].tolist() == [record["chosen"]] and table["row"].tolist() == ["CountsDiff"]
    assert seen == [96, 108], "of 120 cells, 12 are test cells, and 12 validation cells"
