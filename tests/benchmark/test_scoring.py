import numpy as np
import pytest
from anndata import AnnData

import sccountsdiff.benchmark as bm
from sccountsdiff.benchmark import scoring
from sccountsdiff.benchmark.downstream import marker_recovery
from sccountsdiff.benchmark.metrics import Metric
from sccountsdiff.benchmark.metrics.registry import INPUTS, MetricInput
from sccountsdiff.benchmark.missingness import MCAR


@pytest.fixture
def split(toy_data):
    cells = toy_data.adata
    return scoring.Split(cells[:100].copy(), cells[100:].copy(), "type", 0)


def test_hidden_counts_do_not_say_which_genes_are_silent():
    """A gene that is silent in the training cells of a type is observed there, whatever a hidden count of it is."""
    rng = np.random.default_rng(1)
    train, test = (AnnData(rng.poisson(3, (n, 3)).astype(np.float32), obs={"type": ["a"] * n}) for n in (6, 2))
    train.X[:, 0] = 0
    train.X[0, 1] = 0
    test.X[:, 0] = [5, 0]
    split = scoring.Split(train, test, "type", 0, "paper")
    other = scoring.Split(train, test.copy(), "type", 0, "paper")
    other.test.X[0, 0] = 0
    np.testing.assert_array_equal(split.observed[0], other.observed[0])
    assert split.observed[0][:, 0].all() and not split.observed[0][0, 1]
    sites = split.sites(MCAR(1.0))
    assert sites[0, 0] and not sites[1, 0], "what is hidden is for all cells to say"
    assert not (sites & ~split.observed[1]).any()


def test_a_failing_metric_does_not_take_the_others_along(toy_data, monkeypatch):
    def fail(truth, imputed, sites):
        raise ArithmeticError("no such number")

    entries = bm.metrics.METRICS._entries
    monkeypatch.setitem(entries, "fails", bm.metrics.Metric("fails", fail, "lower", ("truth", "imputed", "sites"), "x"))
    table = bm.run(toy_data, "mcar", "zero", metrics=["fails", "rmse"], n_bootstrap=0, silent=True).set_index("metric")
    assert table.loc["fails", "error"] == "ArithmeticError: no such number"
    assert table.loc["rmse", "value"] > 0


def test_scores_agree_with_the_metrics_themselves(split):
    sites = split.sites(MCAR(0.4))
    draws = np.random.default_rng(0).poisson(3, (4, *sites.shape))
    answer = {"imputed": draws.mean(axis=0), "sites": sites, "draws": draws[:, sites]}
    chosen = [bm.metrics.get_metric(name) for name in ("rmse", "crps", "marker_recovery")]
    rows = {row["metric"]: row for row in split.scores(chosen, answer, n_bootstrap=3)}
    assert rows["rmse"]["value"] == bm.metrics.rmse(split.truth, draws.mean(axis=0), sites)
    assert rows["crps"]["value"] == bm.metrics.crps(split.truth, draws[:, sites], sites)
    assert rows["marker_recovery"]["value"] == marker_recovery(split.truth, draws.mean(axis=0), split.labels)
    assert all(row["se"] > 0 and row["error"] is None for row in rows.values())
    answer.pop("draws")
    assert [row["metric"] for row in split.scores(chosen, answer)] == ["rmse", "marker_recovery"], "no draws, no CRPS"


def test_what_depends_on_the_split_alone_is_made_once(split, monkeypatch):
    made = []

    def depth(split):
        made.append("depth")
        return split.truth.sum(axis=1)

    def excess(split, imputed, depth):
        made.append("excess")
        return imputed.sum(axis=1) - depth

    monkeypatch.setitem(INPUTS._entries, "depth", MetricInput(depth))
    monkeypatch.setitem(INPUTS._entries, "excess", MetricInput(excess, needs=("imputed", "depth")))
    mean, largest = (
        Metric(name, function, "zero", ("excess",), "depth")
        for name, function in (("a", lambda excess: excess.mean()), ("b", lambda excess: excess.max()))
    )
    for more in (1.0, 2.0):
        rows = split.scores([mean, largest], {"imputed": split.truth + more})
        assert [row["value"] for row in rows] == [12 * more, 12 * more]
    assert made == ["depth", "excess", "excess"], "what depends on the answer once for each answer"


def test_attempts_keep_the_error_and_let_interruptions_pass(caplog):
    with scoring.attempt("Metric rmse") as outcome:
        raise ValueError("two\n lines")
    assert outcome.error == "ValueError: two lines" and "Metric rmse failed. ValueError: two lines" in caplog.text
    with scoring.attempt("nothing") as outcome:
        pass
    assert outcome.error is None
    with pytest.raises(KeyboardInterrupt), scoring.attempt("nothing"):
        raise KeyboardInterrupt
