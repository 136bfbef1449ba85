import re

import pandas as pd
import pytest

from sccountsdiff.benchmark import report

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
    assert "| gene_mean | **1 (0.1)** |" in text and "| zero | *2 (0.1)* |" in text
    assert "| countsdiff | **1.2 (0.1)** |" in text, "best of its own group"
    assert "| gene_mean | 12.5 | 0.25 | 321 |" in text
    assert "| magic | toy | mcar | 0 |  | ValueError: no \\| graph at all |" in text
    assert "ValueError: no | graph at all" in page
    assert (tmp_path / "figure-1.png").exists() and "(figure-1.png)" in text


def test_from_a_saved_table(results, tmp_path):
    direct = report(results, tmp_path / "direct").read_text()
    results.to_csv(tmp_path / "results.csv", index=False)
    assert report(tmp_path / "results.csv", tmp_path / "saved").read_text() == direct


def test_only_failures_and_nothing_at_all(results, tmp_path):
    page = report(results[results["error"].notna()], tmp_path).read_text()
    assert "magic" in page and "<img" not in page
    with pytest.raises(ValueError, match="empty"):
        report(results[:0], tmp_path)
