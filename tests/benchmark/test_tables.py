import numpy as np
import pandas as pd
import pytest

from sccountsdiff.benchmark.tables import escape_markdown, summarise, to_html, to_markdown, to_table

BASE = {
    "dataset": "toy",
    "protocol": "all",
    "missingness": "mcar",
    "n_samples": 1,
    "seed": 0,
    "se": 0.02,
    "error": None,
    "fit_seconds": 1.0,
    "impute_seconds": 2.0,
    "peak_memory_mb": 300.0,
}
VALUES = {  # method: group, rmse (lower), spearman (higher), bias (near zero)
    "truth": ("reference", np.nan, np.nan, np.nan),
    "a": ("naive", 2.0, 0.5, -0.3),
    "b": ("naive", 1.0, 0.1, 0.2),
    "c": ("naive", 1.5, 0.9, -0.1),
    "d": ("generative", 9.0, 0.3, 5.0),
    "e": ("generative", 3.001, 0.4, -4.0),
    "f": ("generative", 3.002, 0.2, 6.0),
}


@pytest.fixture
def results():
    rows = [
        BASE | {"method": method, "group": group, "metric": metric, "value": value}
        for method, (group, *values) in VALUES.items()
        for metric, value in zip(("rmse", "spearman", "bias"), values, strict=True)
    ]
    return pd.DataFrame(rows)


def test_best_and_second_best_of_each_group(results):
    table = to_table(summarise(results), ["rmse", "spearman", "bias"])
    assert table.ranks.loc[["a", "b", "c"]].to_dict("list") == {
        "rmse": [3, 1, 2],
        "spearman": [2, 3, 1],
        "bias": [3, 2, 1],
    }
    # 3.001 and 3.002 read the same and share the first place.
    assert table.ranks.loc[["d", "e", "f"]].to_dict("list") == {
        "rmse": [2, 1, 1],
        "spearman": [2, 1, 3],
        "bias": [2, 1, 3],
    }
    text = to_markdown(table)
    assert "| b | **1 (0.02)** | 0.1 (0.02) | *0.2 (0.02)* |" in text
    assert text.index("*naive*") < text.index("| a |") < text.index("*generative*") < text.index("| d |")
    assert "| method | rmse ↓ | spearman ↑ | bias →0 |" in text
    page = to_html(table)
    assert "<td>b</td><td><b>1 (0.02)</b></td><td>0.1 (0.02)</td><td><i>0.2 (0.02)</i></td>" in page
    assert page.count('class="rule"') == 1


def test_standard_errors_over_seeds_or_by_bootstrap(results):
    one = results[(results["method"] == "a") & (results["metric"] == "rmse")]
    assert summarise(one)[["mean", "se", "n_seeds"]].to_numpy().tolist() == [[2.0, 0.02, 1]]
    three = pd.concat([one.assign(seed=s, value=v) for s, v in enumerate([1.0, 2.0, 6.0])])
    (mean, se, n), *_ = summarise(three)[["mean", "se", "n_seeds"]].to_numpy()
    assert (mean, n) == (3.0, 3)
    assert se == pytest.approx(np.std([1, 2, 6], ddof=1) / np.sqrt(3))


def test_numbers_of_draws_are_rows_of_their_own_and_gaps_are_shown(results):
    extra = BASE | {"method": "d", "group": "generative", "metric": "crps", "value": 0.5, "n_samples": 5}
    table = to_table(summarise(pd.concat([results, pd.DataFrame([extra])])), ["rmse", "crps"])
    assert table.texts.loc["d (5)"].tolist() == ["–", "0.5 (0.02)"]
    assert table.ranks.loc["d (5)", "rmse"] == 0


def test_names_are_escaped(results):
    odd = results.replace({"method": {"a": "a|<b>"}})
    table = to_table(summarise(odd), ["rmse"])
    assert "| a\\|&lt;b> |" in to_markdown(table)
    assert "a|&lt;b&gt;" in to_html(table)


def test_text_of_others_is_no_markup():
    assert escape_markdown("<script> a|b [x](y) `c`\n# d") == "&lt;script> a\\|b \\[x](y) \\`c\\` # d"
