"""Numbers and statements on the pages come from the saved results; the saved results fit together."""

import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sccountsdiff.benchmark.images import difference_table, recipe_table
from sccountsdiff.benchmark.images.recipes import OTHER_DIFFERENCES
from sccountsdiff.benchmark.paper import ROWS
from sccountsdiff.benchmark.simulated import NegativeBinomialToy
from sccountsdiff.benchmark.simulated.study import SETTINGS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
RESULTS = DOCS / "benchmarks" / "results"
sys.path.append(str(DOCS / "_ext"))

import generated  # noqa: E402
import image_recipes  # noqa: E402
import overview  # noqa: E402
import papers  # noqa: E402
import replaced  # noqa: E402
import statements  # noqa: E402
import tiers  # noqa: E402
from results import ResultError, look_up, number, read  # noqa: E402

BUILT = {"_build", "_generated", "generated"}
PAGES = [page for page in sorted(DOCS.glob("**/*.md")) if not BUILT & set(page.relative_to(DOCS).parts)]


def roles(page: Path) -> list[tuple[str, str]]:
    """Name and text of each role of a page that uses saved results."""
    found = re.findall(r"\{(value|claim)\}`([^`]+)`", page.read_text())
    return [(name, " ".join(text.split())) for name, text in found]


class TestPages:
    @pytest.mark.parametrize("page", [page for page in PAGES if roles(page)], ids=lambda page: page.stem)
    def test_values_are_found_and_statements_hold(self, page):
        for name, text in roles(page):
            assert (statements.evaluate if name == "value" else statements.check)(text)

    def test_all_functions_are_used(self):
        used = {text.rpartition("<")[2].rstrip(">").split(" / ")[0] for page in PAGES for _, text in roles(page)}
        assert {*statements.VALUES, *statements.CLAIMS} - used == set()

    def test_the_table_of_the_readme_is_that_of_the_saved_results(self):
        columns = ["rmse", "poisson_loss", "spearman", "energy_distance", "sliced_wasserstein"]
        means = read("heldout_pbmc3k").groupby("method")[columns].mean()
        rows = {}
        for line in (ROOT / "README.md").read_text().splitlines():
            name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
            if name in means.index:
                rows[name] = cells
        assert len(rows) == 5 and all(len(cells) == len(columns) for cells in rows.values())
        for name, cells in rows.items():
            for column, cell in zip(columns, cells, strict=True):
                decimals = len(cell.strip("*").partition(".")[2])
                assert cell.strip("*") == f"{means.loc[name, column]:.{decimals}f}", (name, column)
        for i, column in enumerate(columns):
            shown = means.loc[list(rows), column]
            best = shown.idxmax() if column == "spearman" else shown.idxmin()
            assert [name for name, cells in rows.items() if cells[i].startswith("**")] == [best]


class TestLookUp:
    def test_one_row(self):
        runs = pd.read_csv(RESULTS / "heldout_kang.csv").set_index(["method", "seed"])
        expected = f"{runs.loc[('scVI, refined', 1), 'rmse']:.3f}"
        assert look_up("heldout_kang / rmse / method=scVI, refined / seed=1 / .3f") == expected

    def test_mean_over_seeds_of_one_setting_of_the_comparison(self):
        raw = pd.read_csv(RESULTS / "comparison_kang.csv")
        raw = raw[(raw["protocol"] == "paper") & raw["missingness"].str.startswith("mnar_low")]
        raw = raw[(raw["method"] == "countsdiff") & (raw["n_samples"] == 5) & (raw["metric"] == "rmse")]
        text = "comparison_kang / rmse / setting=low / method=countsdiff (5) / mean / .4f"
        assert len(raw) == 3 and look_up(text) == f"{raw['value'].mean():.4f}"

    def test_units(self):
        millions = number("images_full_size", "parameters", settings="celeba") / 1e6
        assert look_up("images_full_size / parameters / settings=celeba / in millions / .1f") == f"{millions:.1f}"
        share = number("images_digits_scores", "agreement", guidance=1)
        assert look_up("images_digits_scores / agreement / guidance=1 / .0%") == f"{100 * share:.0f} %"

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("nowhere / rmse / .3f", "no saved result"),
            ("heldout_kang / rsme / method=scVI / mean / .3f", "no column 'rsme'"),
            ("heldout_kang / rmse / methods=scVI / mean / .3f", "no column 'methods'"),
            ("heldout_kang / rmse / method=SCVI / mean / .3f", "no row with method=SCVI"),
            ("heldout_kang / rmse / method=scVI / .3f", "say how to reduce"),
            ("heldout_kang / pit_ks / method=scVI / mean / .3f", "no value"),
            ("heldout_kang / rmse / method=scVI / average / .3f", "'average'"),
            ("heldout_kang / rmse / method=scVI / mean / 3 digits", "not a format"),
            ("heldout_kang", "should be"),
        ],
    )
    def test_what_is_not_there_is_an_error(self, text, message):
        with pytest.raises(ResultError, match=message):
            look_up(text)


class TestStatements:
    def test_text_is_shown_if_it_is_true(self):
        text = "has the lowest RMSE <best / heldout_kang / rmse / method=CountsDiff, one-pass mean>"
        assert statements.check(text) == "has the lowest RMSE"

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("lowest RMSE <best / heldout_kang / rmse / method=scVI>", "not what the saved results say"),
            ("lowest RMSE <better / heldout_kang / rmse / method=scVI / than=scVI, refined>", "not what"),
            ("lowest RMSE <bets / heldout_kang / rmse / method=scVI>", "no statement 'bets'"),
            ("lowest RMSE", "should be"),
        ],
    )
    def test_what_is_not_true_is_an_error(self, text, message):
        with pytest.raises(ResultError, match=message):
            statements.check(text)

    def test_higher_is_better_for_correlations(self):
        assert statements.any_table.best("heldout_kang", "spearman", method="CountsDiff, one-pass mean")
        assert not statements.any_table.best("heldout_kang", "spearman", method="CountsDiff, 1 draw")

    def test_best_in_each_seed_is_more_than_best_on_average(self):
        by_seed = read("heldout_kang").pivot(index="seed", columns="method", values="sliced_wasserstein")
        assert statements.any_table.best("heldout_kang", "sliced_wasserstein", method=by_seed.mean().idxmin())
        assert by_seed.idxmin(axis=1).nunique() > 1
        assert not statements.any_table.best(
            "heldout_kang", "sliced_wasserstein", "each seed", method=by_seed.mean().idxmin()
        )


class TestOverview:
    def test_the_best_has_ratio_1(self):
        for metric in set(overview.METRICS) - {"poisson_loss"}:
            assert (overview.ratios([metric]).min() == 1).all()

    def test_winners_are_those_of_the_saved_results(self):
        raw = pd.read_csv(RESULTS / "comparison_pbmc3k.csv")
        raw = raw[(raw["protocol"] == "all") & (raw["seed"] == 0) & (raw["group"] != "reference")]
        energy = raw[raw["metric"] == "energy_distance"].groupby("method")["value"].min()
        energy.index = energy.index.str.partition("(").get_level_values(0)
        ours = energy[["countsdiff", "countsdiff_mean"]].min()
        place = 1 + (energy.drop(["countsdiff", "countsdiff_mean"]) < ours).sum()
        assert place > 1  # or else the winner is CountsDiff
        assert overview.winners("energy_distance")["all", "pbmc3k"] == (energy.idxmin(), place)

    def test_table_has_a_row_for_each_data_set_and_setting(self):
        lines = overview.table().splitlines()
        assert len(lines) == 2 + len(overview.COLUMNS) == 11
        assert all(line.count("|") == len(overview.METRICS) + 2 for line in lines)

    def test_figure_shows_all_answers_in_order(self):
        axes = overview.figure().axes
        labels = [label.get_text() for label in axes[0].get_yticklabels()]
        assert labels == list(overview.order().index) and {*overview.OURS, "remdm", "remdm (5)"} < set(labels)
        assert len(axes) == 4  # three panels and the colour bar


@pytest.mark.parametrize("name", generated.HELDOUT_TABLES)
def test_generated_tables_of_held_out_cells_mark_the_best(name):
    means = read(name).groupby("method")["rmse"].mean()
    rows = [line.strip("| ").split(" | ") for line in generated.heldout(name).splitlines()[2:]]
    shown = {cells[0]: cells[1] for cells in rows}
    assert set(shown) == set(means.index)
    assert all(float(cell.strip("*")) == pytest.approx(means[method], rel=1e-3) for method, cell in shown.items())
    bold = [method for method, cell in shown.items() if cell.startswith("**")]
    assert bold == ([means.idxmin()] if len(means) > 2 else [])


@pytest.mark.parametrize("name", generated.COMPARISONS)
def test_generated_tables_have_all_methods(name):
    methods = set(pd.read_csv(RESULTS / f"comparison_{name}.csv").dropna(subset="metric")["method"])
    text = generated.comparison(name)
    assert all(f"| {method}" in text for method in methods)
    assert "`scgpt_pretrained` failed" in generated.costs(name)


class TestImageRecipes:
    def test_every_row_has_its_settings_and_the_paper_s_values(self):
        lines = [line for line in image_recipes.recipes().splitlines() if line.startswith("| `")]
        assert len(lines) == len(recipe_table()) and len({line.count("|") for line in lines}) == 1
        cells = [cell.strip() for cell in lines[0].strip("|").split("|")]
        assert cells == [
            "`cifar10_table`", "Table 1", "`cifar10_blackout`", "uncond", "0", "50,000", "2", "35,746,307", "256",
            "300,000", "0.0002", "5.73", "9.12 ± 0.05",
        ]  # fmt: skip
        (best,) = (line for line in lines if "`celeba_60m`" in line)
        assert all(
            part in best
            for part in ("| 1.5 | 0.005 | 50,000 | 4 | 58,971,395 | 100 | 1,000,000 | 0.0002 | 4.948 | – |",)
        )

    def test_every_difference_has_a_reason(self):
        lines = image_recipes.differences().splitlines()[2:]
        assert len(lines) == len(difference_table()) + len(OTHER_DIFFERENCES)
        assert all(len(line.strip("| ").split(" | ")[-1]) > 3 for line in lines)


class TestTiers:
    @pytest.fixture
    def results(self, tmp_path):
        """Ours is better by one metric, and worse by another, on each of two data sets."""
        assert tiers.tables(tmp_path) is None
        rows = [("countsdiff_mean", "rmse", 1.0), ("countsdiff", "rmse", 3.0), ("scvi(n_latent=30)", "rmse", 2.0)]
        rows += [
            ("countsdiff_log_mean", "rmse", 1.1),
            ("countsdiff", "mmd", 0.5),
            ("scvi(n_latent=30)", "mmd", 0.6),
            ("scvi_draw", "mmd", 0.4),
        ]
        fixed = {"protocol": "all", "missingness": "mcar", "group": "naive", "n_samples": 1, "seed": 10, "se": 0.01}
        for name in ("a", "b"):
            table = pd.DataFrame(rows, columns=["method", "metric", "value"]).assign(dataset=name, **fixed)
            table.to_csv(tmp_path / f"tier1_{name}.csv", index=False)
        slow = table[table["method"].str.startswith("countsdiff")].assign(seed=3, value=9.0)
        slow = pd.concat([slow, slow.assign(method="dca", value=8.0)])
        slow.to_csv(tmp_path / "tier2_b.csv", index=False)
        return tiers.comparisons(tiers.tables(tmp_path))

    def test_tables_of_values_have_the_best_answer_of_each_method(self, results, tmp_path):
        lines = tiers.values(tiers.tables(tmp_path)).splitlines()
        at = lines.index("| rmse | a | b |")
        assert lines[at + 2 : at + 4] == ["| countsdiff | **1** | **1** |", "| scvi | 2 | 2 |"]
        at = lines.index("| mmd | a | b |")
        assert lines[at + 2 : at + 4] == ["| scvi | **0.4** | **0.4** |", "| countsdiff | 0.5 | 0.5 |"]
        at = lines.index(":::{tab-item} Slow methods, and all genes")
        assert lines[at + 2 : at + 6] == ["| rmse | b |", "|---|---|", "| dca | **8** |", "| countsdiff | 9 |"]

    def test_what_ran_is_counted_by_seeds_and_failures_are_not(self, results, tmp_path):
        table = tiers.tables(tmp_path)
        failed = table.iloc[:1].assign(method="gain", metric=None, value=None)
        lines = tiers.runs(pd.concat([table, failed])).splitlines()
        assert lines == [
            "| seeds | a | b |",
            "|---|---|---|",
            "| countsdiff | 1 + 0 | 1 + 0 |",
            "| dca | 0 + 0 | 1 + 0 |",
            "| scvi | 1 + 0 | 1 + 0 |",
        ]

    @pytest.mark.parametrize(
        "name", ["blocks", "latent", "ablation", "averaging", "steps", "analyses", "largest_draws"]
    )
    def test_other_tables_are_made_of_saved_results(self, name, tmp_path):
        assert getattr(tiers, name)(tmp_path) is None
        if (RESULTS / f"{name}.csv").exists():
            lines = getattr(tiers, name)().splitlines()
            assert len(lines) > 2 and len({line.count("|") for line in lines}) == 1

    def test_blocks_are_means_over_seeds(self, tmp_path):
        assert tiers.blocks(tmp_path) is None
        rows = [
            ["peaks", seed, "knn_mean", metric, value + seed]
            for metric, value in {"rmse": 2, "ratio_of_sums": 0, "spearman_per_gene": 0}.items()
            for seed in (0, 2)
        ]
        rows += [["peaks", 0, "countsdiff", "coverage_90", 0.9]]
        pd.DataFrame(rows, columns=["block", "seed", "method", "metric", "value"]).to_csv(
            tmp_path / "blocks.csv", index=False
        )
        assert "| peaks (2 seeds) | knn_mean | 3 | 1 ± 1 | 1 |  |" in tiers.blocks(tmp_path).splitlines()

    def test_embeddings_are_means_over_seeds(self, tmp_path):
        rows = [["kang", seed, "pca", "type_accuracy", 0.5 + seed / 4] for seed in (0, 1)]
        rows += [["kang", 0, "scvi", "same_batch", 1.25]]
        rows += [["kang", 0, "pca", "type_silhouette", 0.125]]
        pd.DataFrame(rows, columns=["dataset", "seed", "method", "metric", "value"]).to_csv(
            tmp_path / "latent.csv", index=False
        )
        lines = tiers.latent(tmp_path).splitlines()
        assert lines[2:] == ["| kang (2 seeds) | pca | 0.625 | 0.125 |  |", "| kang (1 seeds) | scvi |  |  | 1.250 |"]

    def test_counts_are_by_method_and_kind_of_metric(self, results):
        lines = tiers.counts(results).splitlines()
        assert lines[0] == "| against | single entries | distribution | all |"
        assert lines[2:] == ["| scvi | 2/0/0 | 0/0/2 | 2/0/2 |", "| dca | 0/0/1 | – | 0/0/1 |"]

    def test_what_has_no_answer_is_not_beaten(self, tmp_path):
        fixed = {"dataset": "a", "protocol": "all", "group": "naive", "n_samples": 1, "seed": 13, "se": 0.01}
        rows = [(method, "mmd", pattern, 1.0) for method in tiers.OURS for pattern in ("mcar", "panel")]
        rows += [(method, "mmd", pattern, 2.0) for method in ("magic", "remdm") for pattern in ("mcar", "panel")]
        rows += [(method, "rmse", pattern, 1.0) for method in (*tiers.OURS, "magic") for pattern in ("mcar", "panel")]
        table = pd.DataFrame(rows, columns=["method", "metric", "missingness", "value"]).assign(tier="tier1", **fixed)
        found = tiers.comparisons(table)
        assert set(zip(found["rival"], found["metric"], found["missingness"], strict=True)) == {
            ("magic", "rmse", "mcar"),
            ("remdm", "mmd", "mcar"),
            ("remdm", "mmd", "panel"),
        }

    def test_losses_are_listed(self, results):
        lines = tiers.losses(results).splitlines()
        assert lines[2:] == [
            *(f"| {name} | all | mcar | mmd | 0.5 (`countsdiff`) | 0.4 (`scvi_draw`) | 0.01 |" for name in "ab"),
            "| b | all | mcar | rmse | 9 (`countsdiff_mean`) | 8 (`dca`) | 0.01 |",
        ]


class TestPaper:
    def test_settings_have_a_line_for_each_row_and_atlas(self):
        lines = [line for line in papers.settings().splitlines() if line.startswith("| ")]
        assert len(lines) == 2 * (1 + len(ROWS)) and all(line.count("|") == 8 for line in lines)
        assert papers._pair("512", "512") == "512" and papers._pair("32", "72") == "32 *(72)*"

    def test_models_were_trained_to_convergence(self):
        losses = read("paper_model_losses")
        assert (
            statements.CLAIMS["paper_model_converged"]()
            and losses.groupby(["genes", "model", "seed"]).size().min() >= 20
        )

    def test_scores_and_figure(self, tmp_path):
        n_models = len(read("paper_model")[["genes", "model"]].drop_duplicates())
        assert len(papers.scores().splitlines()) == 2 + 2 * n_models
        papers.save_figure(tmp_path / "figure.png")
        assert (tmp_path / "figure.png").stat().st_size > 10_000


class TestReplacedCovariates:
    def test_tables_show_real_and_predicted_changes_and_mixing(self, tmp_path):
        kang = {"data": "kang", "group": "B cells", "n_cells": 40, "real_change": 4.0, "correlation": 0.9}
        kang |= {"held_out": True, "stable_moved": 0.2, "stable_moved_really": 0.1}
        rows = [
            kang | {"way": way, "change": change, "share": change / 4}
            for way, change in zip(list(replaced.WAYS)[2:], (1, 3), strict=True)
        ]
        rows += [{"data": "onek1k", "way": way, "same_donor": 1.5, "same_type": 0.9} for way in replaced.WAYS]
        assert replaced.stimulation(tmp_path) is None is replaced.donors(tmp_path)
        pd.DataFrame(rows).to_csv(tmp_path / "covariates.csv", index=False)
        line = "| B cells (40), none stimulated in training | 4.00 | 1.00 (25 %) | 3.00 (75 %) | 0.90 | 0.10 | 0.20 |"
        assert replaced.stimulation(tmp_path).splitlines()[2:] == [line]
        assert replaced.donors(tmp_path).splitlines()[-1].endswith("| 1.50 | 0.900 |")

    def test_the_saved_run_is_of_the_seed_that_nothing_was_chosen_with(self):
        assert set(read("covariates")["seed"]) == {10}


class TestSavedResults:
    @pytest.mark.parametrize("path", sorted(RESULTS.glob("*_summary.csv")), ids=lambda path: path.stem)
    def test_summaries_are_the_means_of_the_runs(self, path):
        if path.stem == "simulated_summary":
            summary = read("simulated_summary").set_index(["setting", "model"])
            means = read("simulated_joint").groupby(["setting", "model"])[["joint_swd", "joint_mmd"]].mean()
            pd.testing.assert_frame_equal(summary[["joint_swd", "joint_mmd"]], means.loc[summary.index], rtol=2e-3)
            marginal = read("simulated_marginal")
            ratios = (marginal["variance"] / marginal["true_variance"]).groupby(
                [marginal["setting"], marginal["model"]]
            )
            np.testing.assert_allclose(summary["variance_ratio"], ratios.median().loc[summary.index], rtol=2e-3)
            return
        means = pd.read_csv(str(path).replace("_summary", "")).groupby("method").mean().drop(columns="seed").T
        summary = pd.read_csv(path, index_col="metric").drop(index="seeds")[means.columns]
        pd.testing.assert_frame_equal(summary, means.loc[summary.index], rtol=1e-2, atol=1e-4, check_names=False)

    def test_closest_is_counted_as_in_the_summary(self):
        for setting in SETTINGS:
            for model, n in statements.simulated._closest(setting).items():
                assert n == number("simulated_summary", "closest", setting=setting, model=model)

    def test_simulated_run_is_the_whole_study(self):
        runs = read("simulated_joint").groupby(["setting", "seed"], sort=False)["model"].agg(list)
        assert runs.index.tolist() == [(name, seed) for name in SETTINGS for seed in (0, 1, 2)]
        for (name, _), models in runs.items():
            assert models == ["truth", *SETTINGS[name].models]

    def test_simulated_variances_are_those_of_the_seeds(self):
        for (name, seed), part in read("simulated_marginal").groupby(["setting", "seed"]):
            toy = NegativeBinomialToy.draw(seed, mean_range=SETTINGS[name].mean_range)
            for _, rows in part.groupby("model"):
                np.testing.assert_allclose(rows["true_variance"], np.diag(toy.covariance), rtol=1e-3)

    def test_failures_of_the_comparison_are_those_that_are_stated(self):
        for name in generated.COMPARISONS:
            table = pd.read_csv(RESULTS / f"comparison_{name}.csv")
            assert set(table.loc[table["error"].notna(), "method"]) == {"scgpt_pretrained"}
