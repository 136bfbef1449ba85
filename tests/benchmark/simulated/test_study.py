import numpy as np
import pandas as pd
import pytest

from sccountsdiff.benchmark import simulated
from sccountsdiff.benchmark.simulated import Budget, Setting, run_study, summarise, variance_table
from sccountsdiff.benchmark.simulated.report import closest
from sccountsdiff.benchmark.simulated.scoring import joint_scores, marginal_scores
from sccountsdiff.benchmark.simulated.study import COMPARED, MODELS
from sccountsdiff.cli import main

TINY = Budget(n_train=200, n_gradient_steps=5, n_samples=60, n_sampling_steps=4, batch_size=16, n_rounded=50)
TABLES = ("summary", "variance", "rounding", "joint", "marginal")
FIGURES = ("variance", "histograms", "joint", "rounding")


@pytest.fixture(scope="module")
def tiny():
    return run_study(seeds=[0, 1], settings={"one": Setting()}, budget=TINY, silent=True)


def test_command_writes_all_tables_and_figures(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sccountsdiff.benchmark.simulated.study.QUICK", TINY)
    output = tmp_path / "out"
    assert main(["benchmark", "simulated", "--quick", "--seeds", "3", "--output", str(output)]) == 0
    expected = {f"simulated_{name}.csv" for name in TABLES} | {f"simulated_{name}.png" for name in FIGURES}
    assert {path.name for path in output.iterdir()} == expected | {"simulated.md"}
    assert all((output / name).stat().st_size > 5000 for name in expected if name.endswith("png"))
    joint = pd.read_csv(output / "simulated_joint.csv")
    assert set(joint["model"]) == {"truth", *MODELS} and set(joint["seed"]) == {3}
    page = (output / "simulated.md").read_text()
    assert "| wide | countsdiff |" in page and all(f"simulated_{name}.png" in page for name in FIGURES)
    assert "joint_swd" in capsys.readouterr().out


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


def test_summary_counts_every_dimension_once(tiny):
    table = summarise(tiny).set_index("model")
    assert table["closest"].sum() == 20 and table.loc["truth", "closest"] == 0
    assert (table["smallest"] <= table["variance_ratio"]).all() and (table["variance_ratio"] <= table["largest"]).all()
    first = variance_table(tiny, "one", 0)
    assert list(first.columns) == ["dimension", "truth", *COMPARED] and len(first) == 10
    masked = tiny.marginal.query("seed == 0 and model == 'masked'")
    np.testing.assert_array_equal(first["masked"], masked["variance"])
    np.testing.assert_array_equal(first["truth"], masked["true_variance"])


def test_closest_is_by_absolute_difference_and_ignores_other_models():
    rows = [("gaussian", 0.1), ("masked", 1.8), ("countsdiff", 0.3), ("truth", 1.0), ("countsdiff, bare softplus", 1.0)]
    table = pd.DataFrame(rows, columns=["model", "variance"]).assign(
        setting="a", seed=0, dimension=0, true_variance=1.0
    )
    assert closest(table).to_dict() == {("a", "countsdiff"): 1}


def test_scores_of_a_shift():
    x = np.random.default_rng(0).poisson(2.0, (300, 2)).astype(float)
    scores = marginal_scores(x, x + [0, 3])
    assert scores["wasserstein_1"].tolist() == [0.0, 3.0]
    np.testing.assert_allclose(scores["variance"], x.var(0))
    assert scores["mmd"][0] == 0 < scores["mmd"][1]
    assert joint_scores(x, x + 1)["joint_swd"] < joint_scores(x, x + 2)["joint_swd"]


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


def test_error_of_the_command_is_one_line(tmp_path, capsys):
    assert main(["benchmark", "simulated", "--quick", "--seeds", "0", "0", "--output", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "`seeds`" in error and error.count("\n") == 1
