"""The study is tidy, complete and decided by its seeds."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from sccountsdiff.benchmark import simulated
from sccountsdiff.benchmark.simulated import Budget, Setting, run_study
from sccountsdiff.benchmark.simulated.study import COMPARED, joint_scores, marginal_scores

TINY = Budget(n_train=200, n_gradient_steps=5, n_samples=60, n_sampling_steps=4, batch_size=16, n_rounded=50)


@pytest.fixture(scope="module")
def tiny():
    return run_study(seeds=[0, 1], settings={"one": Setting()}, budget=TINY, silent=True)


def test_tables_are_tidy_and_complete(tiny):
    assert len(tiny.joint) == 2 * (1 + len(COMPARED))
    assert len(tiny.marginal) == 10 * len(tiny.joint)
    assert tiny.joint.notna().all(axis=None) and tiny.marginal.notna().all(axis=None)
    sizes = tiny.joint[tiny.joint["model"] != "truth"].groupby("seed")["n_parameters"]
    assert (sizes.max() / sizes.min() < 1.03).all()


def test_the_seed_decides(tiny):
    again = run_study(seeds=[1], settings={"one": Setting()}, budget=TINY, silent=True)
    one = tiny.joint[tiny.joint["seed"] == 1].reset_index(drop=True)
    pd.testing.assert_frame_equal(one, again.joint)
    # Seeds have toys of their own.
    assert tiny.marginal.query("dimension == 0")["true_variance"].nunique() == 2


def test_an_interrupted_study_goes_on(tiny, tmp_path, monkeypatch, caplog):
    """What was drawn is read again, bit for bit; what is damaged or of another budget is not."""
    options = {"settings": {"one": Setting()}, "silent": True}
    fit, fitted = simulated.study.fit, []

    def interrupted(*args, **kwargs):
        fitted.append(kwargs["description"])
        if len(fitted) == 5:
            raise KeyboardInterrupt
        fit(*args, **kwargs)

    monkeypatch.setattr(simulated.study, "fit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_study(tmp_path, seeds=[0, 1], budget=TINY, **options)
    study = run_study(tmp_path, seeds=[0, 1], budget=TINY, **options)
    assert len(fitted) == 5 + 2 and fitted[4] == fitted[5], "four models were there"
    pd.testing.assert_frame_equal(study.joint, tiny.joint)
    pd.testing.assert_frame_equal(study.marginal, tiny.marginal)
    damaged = min((tmp_path / "drawn").iterdir())
    damaged.write_bytes(damaged.read_bytes()[:100])
    pd.testing.assert_frame_equal(run_study(tmp_path, seeds=[0, 1], budget=TINY, **options).joint, tiny.joint)
    assert len(fitted) == 8 and "is damaged" in caplog.text
    run_study(tmp_path, seeds=[0], budget=dataclasses.replace(TINY, n_gradient_steps=4), **options)
    assert len(fitted) == 8 + len(COMPARED)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seeds": []}, "`seeds`"),
        ({"seeds": [1, 1]}, "`seeds`"),
        ({"seeds": [-1]}, "`seeds`"),
        ({"quick": True, "budget": TINY}, "`quick`"),
        ({"settings": {"odd": Setting(models=("gausian",))}}, "'odd'"),
        ({"settings": {"odd": Setting(learning_rate=0.0)}}, "'odd'"),
    ],
)
def test_bad_arguments_are_refused_before_work_starts(arguments, message, monkeypatch):
    monkeypatch.setattr(simulated.study, "fit", lambda *args, **kwargs: pytest.fail("work has started"))
    with pytest.raises(ValueError, match=message):
        run_study(**arguments)


def test_scores_of_a_shift():
    x = np.random.default_rng(0).poisson(2.0, (300, 2)).astype(float)
    scores = marginal_scores(x, x + [0, 3])
    assert scores["wasserstein_1"].tolist() == [0.0, 3.0]
    np.testing.assert_allclose(scores["variance"], x.var(0))
    assert scores["mmd"][0] == 0 < scores["mmd"][1]
    assert joint_scores(x, x + 1)["joint_swd"] < joint_scores(x, x + 2)["joint_swd"]
