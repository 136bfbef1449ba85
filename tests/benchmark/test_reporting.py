import re
from importlib.metadata import version

import pandas as pd
import pytest

from sccountsdiff.benchmark import provenance, report

BASE = {"dataset": "toy", "protocol": "all", "missingness": "mcar", "n_samples": 1, "seed": 0, "se": 0.1, "error": None}
COSTS = {"fit_seconds": 12.5, "impute_seconds": 0.25, "peak_memory_mb": 321.0}


@pytest.fixture
def results():
    rows = [
        BASE | COSTS | {"method": method, "group": group, "metric": metric, "value": value}
        for method, group, values in (
            ("zero", "naive", (2.0, 0.9)),
            ("gene_mean", "naive", (1.0, 0.5)),
            ("countsdiff", "generative", (1.2, 0.1)),
        )
        for metric, value in zip(("rmse", "energy_distance"), values, strict=True)
    ]
    failed = BASE | {
        "method": "magic",
        "group": "specialised",
        "metric": None,
        "error": "ValueError: no | graph\nat all",
    }
    return pd.DataFrame([*rows, failed])


def test_the_page_needs_no_other_file(results, tmp_path):
    page = report(results, tmp_path).read_text()
    assert "http" not in page
    sources = re.findall(r'src="([^"]{0,22})', page)
    assert sources == ["data:image/png;base64,"]
    assert "<link" not in page and "<script" not in page and "@import" not in page and "url(" not in page


def test_marks_costs_and_failures(results, tmp_path):
    page = report(results, tmp_path, title="A & B").read_text()
    text = (tmp_path / "report.md").read_text()
    assert "<h1>A &amp; B</h1>" in page and text.startswith("# A & B")
    assert "| gene_mean | **1 (0.1)** |" in text and "| zero | 2 (0.1) |" in text
    assert "| countsdiff | 1.2 (0.1) |" in text and "| countsdiff | **0.1 (0.1)** |" in text, "one best for each metric"
    assert "| gene_mean | 12.5 | 0.25 | 321 |" in text
    assert "| magic | toy | mcar | 0 |  | ValueError: no \\| graph at all |" in text
    assert "ValueError: no | graph at all" in page
    assert (tmp_path / "figure-1.png").exists() and "(figure-1.png)" in text


def test_from_a_saved_table(results, tmp_path):
    date = lambda text: re.sub(r"<dt>Date</dt><dd>[^<]*</dd>", "", text)
    direct = report(results, tmp_path / "direct").read_text()
    results.to_csv(tmp_path / "results.csv", index=False)
    assert date(report(tmp_path / "results.csv", tmp_path / "saved").read_text()) == date(direct)


def test_only_failures_and_nothing_at_all(results, tmp_path):
    page = report(results[results["error"].notna()], tmp_path).read_text()
    assert "magic" in page and "<img" not in page
    with pytest.raises(ValueError, match="empty"):
        report(results[:0], tmp_path)


def test_opens_with_a_picture_and_says_what_was_run(results, tmp_path):
    results["dataset"] = "blood <*a|b*>"
    page = report(results, tmp_path, about={"Command": "bm.run('<x>')", "Cells": "10"}).read_text()
    assert page.index("<h1>") < page.index("<img") < page.index("<h2>What was run") < page.index("<table>")
    assert "<dt>Cells</dt><dd>10</dd>" in page and "<dd>bm.run(&#x27;&lt;x&gt;&#x27;)</dd>" in page
    assert "<dt>Seeds</dt><dd>0</dd>" in page and "<dt>Time of the methods</dt><dd>38 s</dd>" in page  # 3 * 12.75
    assert f"sccountsdiff {version('sccountsdiff')}" in page and "blood &lt;*a|b*&gt;" in page and "<*a" not in page
    text = (tmp_path / "report.md").read_text()
    assert "blood \\<\\*a\\|b\\*\\>, mcar" in text and "- Command: bm.run('\\<x\\>')" in text
    assert text.index("![figure 1]") < text.index("## What was run")


def test_finds_what_the_command_has_noted(results, tmp_path):
    provenance.save({"Command": "sccountsdiff benchmark"}, tmp_path)
    assert "<dt>Command</dt><dd>sccountsdiff benchmark</dd>" in report(results, tmp_path).read_text()
    results.to_csv(tmp_path / "results.csv", index=False)
    assert "sccountsdiff benchmark" in report(tmp_path / "results.csv", tmp_path / "other").read_text()


def test_there_is_a_picture_without_the_metrics_of_the_plot(results, tmp_path):
    page = report(results[results["metric"] == "rmse"], tmp_path).read_text()
    assert page.count("<img") == 1
