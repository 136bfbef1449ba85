import pandas as pd
import pytest

from sccountsdiff.benchmark.outcomes import count_outcomes, head_to_head


def results(values, **columns):
    """A table from values by method, one for each seed."""
    rows = [
        {"method": method, "seed": seed, "value": value}
        for method, of_seeds in values.items()
        for seed, value in enumerate(of_seeds)
    ]
    fixed = {"dataset": "toy", "protocol": "all", "missingness": "mcar", "n_samples": 1, "metric": "rmse", "se": 0.0}
    return pd.DataFrame(rows).assign(**fixed | {"group": "naive"} | columns)


def outcome(table, method="ours", **options):
    return head_to_head(table, method, **options).set_index("rival")["outcome"].to_dict()


def test_what_is_within_a_standard_error_over_seeds_is_a_tie():
    # Paired differences 0.1, 0.1, 0.1 have no standard error; 0.3, -0.3, 0.1 have one of 0.18, above their mean of 0.03.
    table = results(
        {"ours": [1.0, 2.0, 3.0], "clear": [1.1, 2.1, 3.1], "noisy": [1.3, 1.7, 3.1], "ahead": [0.9, 1.9, 2.9]}
    )
    assert outcome(table) == {"clear": "win", "noisy": "tie", "ahead": "loss"}


def test_what_is_within_the_error_of_the_bootstrap_is_a_tie():
    table = results({"ours": [1.0, 2.0, 3.0], "a": [1.1, 2.1, 3.1]})
    # Two methods with the same error, three seeds: sqrt(2 / 3) times it.
    assert outcome(table.assign(se=0.12)) == {"a": "win"} and outcome(table.assign(se=0.13)) == {"a": "tie"}
    one_seed = table[table["seed"] == 0]
    assert outcome(one_seed.assign(se=0.07)) == {"a": "win"} and outcome(one_seed.assign(se=0.08)) == {"a": "tie"}


@pytest.mark.parametrize(
    ("metric", "ours", "worse"), [("spearman", 0.5, 0.4), ("bias", -0.1, 0.2), ("ratio_of_sums", 1.1, 0.8)]
)
def test_directions_of_metrics(metric, ours, worse):
    table = results({"ours": [ours], "a": [worse]}, metric=metric)
    assert outcome(table) == {"a": "win"} and outcome(table, "a") == {"ours": "loss"}


def test_the_best_answer_of_a_method_counts_and_settings_are_no_part_of_its_name():
    mean = results({"ours_mean": [1.0, 1.0]})
    draw = results({"ours(dropout=0.3)": [2.0, 2.0], "a(n_latent=30)": [3.0, 3.0]})
    five = results({"ours(dropout=0.3)": [1.5, 1.5], "a(n_latent=30)": [1.2, 1.2]}, n_samples=5)
    table = head_to_head(pd.concat([mean, draw, five]), ["ours", "ours_mean"]).iloc[0]
    assert table[["answer", "rival_answer"]].tolist() == ["ours_mean", "a (5)"]
    assert table["outcome"] == "win" and table["difference"] == pytest.approx(0.2)
    assert outcome(pd.concat([draw, five]), rivals=["a"]) == {"a": "loss"}
    family = head_to_head(pd.concat([mean, draw]), "a", families={"ours_mean": "ours"})
    assert family[["rival", "rival_answer"]].to_numpy().tolist() == [["ours", "ours_mean"]]


def test_only_seeds_and_tasks_of_both_are_compared():
    table = results({"ours": [1.0, 1.0, 9.0], "a": [2.0, 2.0]})
    assert head_to_head(table, "ours")["n_seeds"].tolist() == [2] and outcome(table) == {"a": "win"}
    elsewhere = pd.concat([results({"ours": [1.0]}), results({"a": [2.0]}, missingness="panel")])
    assert head_to_head(elsewhere, "ours").empty


def test_failures_references_and_unknown_metrics_are_left_out():
    table = results({"ours": [1.0], "failed": [float("nan")]})
    more = [results({"truth": [0.5]}, group="reference"), results({"ours": [1.0], "a": [3.0]}, metric="shoe_size")]
    assert head_to_head(pd.concat([table, *more]), "ours").empty
    with pytest.raises(KeyError, match="no results of 'nobody'"):
        head_to_head(table, "nobody")


def test_counts():
    tables = [
        results({"ours": [1.0], "a": [2.0], "b": [0.5]}, dataset=name, se=se) for name, se in (("x", 0.1), ("y", 0.6))
    ]
    comparisons = head_to_head(pd.concat(tables), "ours")
    assert count_outcomes(comparisons).to_dict("index") == {
        "a": {"win": 2, "tie": 0, "loss": 0},
        "b": {"win": 0, "tie": 1, "loss": 1},
    }
    assert count_outcomes(comparisons, ["dataset", "rival"]).loc[("y", "b")].tolist() == [0, 1, 0]
    assert comparisons[comparisons["outcome"] == "loss"][["dataset", "rival"]].to_numpy().tolist() == [["x", "b"]]
