"""Each method does the same for a task, and training is timed up to its best validation."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from sccountsdiff import CountsDiffImputer
from sccountsdiff.benchmark import speed_methods
from sccountsdiff.benchmark.quiet import quiet
from sccountsdiff.benchmark.speed import TASKS, simulate_counts
from sccountsdiff.benchmark.speed_methods import SUBJECTS


def test_training_is_timed_up_to_its_best_validation(monkeypatch):
    clock, now = speed_methods._Clock("loss"), iter([10.0, 11.0, 13.0])
    monkeypatch.setattr(speed_methods.time, "process_time", lambda: next(now))
    clock.on_validation_end(SimpleNamespace(callback_metrics={"loss": 0.0}))  # a check before training starts
    clock.on_train_start()
    for loss in (5.0, 3.0, 4.0):
        clock.on_validation_end(SimpleNamespace(callback_metrics={"loss": loss}))
    clock.on_validation_end(SimpleNamespace(callback_metrics={}))
    assert (clock.best, clock.seconds) == (3.0, 3.0)


@pytest.mark.parametrize("name", ["countsdiff", "scvi", "knn_mean"])
def test_methods_have_known_tasks(name):
    with quiet():
        subject = SUBJECTS[name](simulate_counts(12, 8), 4, 1)
    assert subject.name == name and subject.n_cells == 12 and set(subject.work) <= set(TASKS)


def test_the_mean_in_one_pass_is_that_of_half_of_the_entries_without_draws(monkeypatch):
    asked = []
    monkeypatch.setattr(CountsDiffImputer, "impute", lambda model, **options: asked.append(options))
    with quiet():
        work = SUBJECTS["countsdiff"](simulate_counts(12, 8), 4, 1).work
    work["one_pass_mean"]()
    work["one_draw"]()
    assert [options["n_samples"] for options in asked] == [0, 1]
    assert 0.3 < asked[0]["sites"].mean() < 0.7 and asked[0]["key_added"] is None
