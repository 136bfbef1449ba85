"""Methods are timed in turns, and ratios are of times in the same repeat."""

from __future__ import annotations

import time

import numpy as np
import pandas as pd
import pytest
import torch

from sccountsdiff.benchmark.speed import (
    PROFILED,
    SUBJECTS,
    TASKS,
    cost,
    matmul_share,
    plot_speed,
    ratios,
    read_counts,
    run_speed,
    simulate_counts,
)
from sccountsdiff.benchmark.speed_methods import Subject
from sccountsdiff.training import default_max_epochs


@pytest.fixture
def times() -> pd.DataFrame:
    """Of two methods in three repeats; the second takes twice, three times and four times as long."""
    rows = [("scvi", repeat, 1.0 + repeat) for repeat in range(3)]
    rows += [("other", repeat, (1.0 + repeat) * (2 + repeat)) for repeat in range(3)]
    return pd.DataFrame(rows, columns=["method", "repeat", "ms_per_cell"]).assign(task="one_draw")


def test_ratios_are_of_times_in_the_same_repeat(times):
    found = ratios(times).set_index("method")[["median", "min", "max"]]
    assert found.loc["other"].tolist() == [3, 2, 4]
    assert found.loc["scvi"].tolist() == [1, 1, 1]
    assert ratios(times, reference="absent").empty


def test_cost_grows_with_the_cells_and_with_the_epochs_of_training():
    times = pd.DataFrame({"method": "countsdiff", "task": ["training_step", "one_draw"], "ms_per_cell": [1.0, 3.6]})
    found = cost(times, sizes=[10_000, 1_000_000]).set_index(["task", "n_cells"])["hours"]
    assert found["one_draw", 1_000_000] == pytest.approx(1.0)
    assert found["training", 10_000] == pytest.approx(default_max_epochs(10_000, 128) * 1e4 / 3.6e6)
    assert found["training", 1_000_000] < 100 * found["training", 10_000]  # more cells need fewer epochs
    assert cost(times.assign(method="scvi")).empty


def test_a_panel_for_each_task(times):
    figure = plot_speed(pd.concat([times, times.assign(task="training_step")]))
    assert [axes.get_title() for axes in figure.axes] == ["training step", "one draw"]


def test_share_of_products():
    big, small = torch.ones(400, 400), torch.ones(400, 400)
    assert matmul_share(lambda: big @ big) > 0.5  # calls take some of the time
    assert matmul_share(lambda: small.exp().sum()) == 0


def test_share_of_products_is_not_that_of_waiting():
    big = torch.ones(400, 400)

    def step():
        time.sleep(0.05)  # as where another process has the core
        return big @ big

    assert matmul_share(step) > 0.3


def test_one_thread_whatever_the_libraries_before_have_asked_for(tmp_path, monkeypatch):
    threads, before = [], torch.get_num_threads()
    subject = Subject("scvi", n_cells=4, work={"one_draw": lambda: threads.append(torch.get_num_threads())})
    monkeypatch.setitem(SUBJECTS, "scvi", lambda *args: subject)
    torch.set_num_threads(2)
    try:
        run_speed(tmp_path, n_genes=4, n_cells=4, methods=["scvi"], tasks=["one_draw"], repeats=1)
        assert set(threads) == {1} and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_counts_are_like_those_of_cells():
    counts = simulate_counts(200, 300).X
    assert 0.1 < counts.nnz / np.prod(counts.shape) < 0.4
    assert (counts.data == np.rint(counts.data)).all()
    assert (counts != simulate_counts(200, 300, seed=1).X).nnz


def test_counts_of_a_data_set_are_those_of_its_most_variable_genes():
    counts = read_counts("pbmc68k", 50, 20)
    assert counts.shape == (50, 20) and read_counts("pbmc68k", 10**6, 10**6).shape == (700, 765)
    assert (counts.X.data == np.rint(counts.X.data)).all() and counts.X.dtype == np.float32


@pytest.mark.parametrize(("argument", "value"), [("methods", "scVI"), ("tasks", "draw")])
def test_unknown_names_are_refused(argument, value, tmp_path):
    with pytest.raises(ValueError, match=f"`{argument}` must be .*, not '{value}'"):
        run_speed(tmp_path, **{argument: [value]})


@pytest.mark.slow
def test_everything_is_timed_and_saved(tmp_path):
    table = run_speed(tmp_path, n_genes=30, n_cells=128, batch_size=16, repeats=2, max_epochs=2)
    assert set(table["method"]) == set(SUBJECTS) and set(table["task"]) == set(TASKS)
    assert (table["ms_per_cell"] >= 0).all() and (table["peak_memory_mb"] > 1).all()
    steps = table["task"] == "training_step"
    assert table.loc[steps, "matmul_share"].between(0.001, 1).all()
    assert list(table.loc[table["matmul_share"].notna(), "task"].unique()) == list(PROFILED)
    assert {path.name for path in tmp_path.iterdir()} == {
        "speed.csv",
        "speed_ratios.csv",
        "speed_cost.csv",
        "speed.png",
    }
    assert len(pd.read_csv(tmp_path / "speed.csv")) == len(table)
