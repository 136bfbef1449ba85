import pytest

from sccountsdiff.benchmark.provenance import describe_run, load, save, surroundings


def test_cells_genes_and_hidden_shares_are_counted():
    about = describe_run(
        "pbmc68k", ["mcar:0.25", "molecules"], [3], n_genes=50, n_cells=200, min_cells=0, test_share=0.2
    )
    assert about["Data set pbmc68k"] == "200 cells, 50 genes; 40 cells are test cells"
    share, of_what = about["Hidden in pbmc68k by mcar(rate=0.25)"].split(" % of the ")
    assert of_what == "2,000 entries of test cells"
    assert float(share) == pytest.approx(25, abs=5)  # 5 standard errors of 2,000 entries
    assert about["Hidden in pbmc68k by molecules"].endswith("molecules of test cells")
    assert about["Seeds"] == "3" and "Command" not in about and "torch" in about["Versions"]


def test_a_quick_run_is_described_as_it_was():
    assert describe_run("pbmc68k", quick=True)["Data set pbmc68k"].startswith("700 cells")
    assert describe_run("pbmc68k", quick=True, n_genes=10)["Data set pbmc68k"].startswith("700 cells, 10 genes")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"Seeds": 3}', "[" * 100_000])
def test_what_is_damaged_is_set_aside(tmp_path, caplog, text):
    (tmp_path / "about.json").write_text(text)
    assert load(tmp_path) == {} and "about.json is damaged" in caplog.text
    assert (tmp_path / "about.json.damaged").read_text() == text


def test_is_kept_beside_the_results(tmp_path):
    assert load(tmp_path) == {}
    save({"Seeds": "0"} | surroundings(), tmp_path)
    assert load(tmp_path)["Seeds"] == "0"
