from dataclasses import replace
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

from sccountsdiff.benchmark import baselines
from sccountsdiff.benchmark.paper import FETUS, HEART, ROWS, Budget
from sccountsdiff.benchmark.paper.rows import FEWEST_STEPS, N_STEPS
from sccountsdiff.diffusion import get_schedule, reverse_walk


@pytest.fixture(scope="module", autouse=True)
def all_methods():
    for module in iter_modules(baselines.__path__):
        import_module(f"{baselines.__name__}.{module.name}")


@pytest.mark.parametrize("atlas", [FETUS, HEART], ids=["fetus", "heart"])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.registered)
def test_settings_are_settings_of_the_method(row, atlas):
    method = row.method(Budget(atlas, 1000, 0.1, weights=Path("somewhere")))
    assert method.name == row.registered
    for setting, value in row.settings(Budget(atlas, 1000, 0.1, weights=Path("somewhere"))).items():
        assert getattr(method, setting) == value


@pytest.mark.parametrize(("n_cells", "scale"), [(4_062_980, 1), (5000, 0.01), (300, 0.0001)])
def test_epochs_make_up_for_the_steps(n_cells, scale):
    steps_per_epoch = -(-int(0.8 * n_cells) // 512)
    wanted = max(FEWEST_STEPS, 100_000 * scale)
    steps = Budget(FETUS, n_cells, scale).epochs(100_000, 512) * steps_per_epoch
    assert wanted <= steps < wanted + steps_per_epoch


def test_countsdiff_is_trained_as_in_the_paper():
    budget = Budget(HEART, 486_134)
    method = next(row for row in ROWS if row.name == "CountsDiff").method(budget)
    assert method.max_epochs == 66  # 50,000 steps of 512 of 388,907 cells
    assert method.train_kwargs["plan_kwargs"] == {
        "lr": 2e-4,
        "weight_decay": 1e-4,
        "n_warmup_steps": 1000,
        "lr_final": 1.0,
    }
    assert method.train_kwargs["batch_size"] == 512 and method.train_kwargs["ema_decay"] == 0.999
    assert method.model_kwargs["dropout_rate"] == 0.1 and method.model_kwargs["p_uncond"] == 0.2
    assert (method.attrition, method.guidance, method.n_steps) == (0.005, 1.0, 19)
    assert method.backbone == "transformer" and not method.observed_training


def test_countsdiff_draws_as_the_authors_script_does_for_the_fetal_atlas():
    method = next(row for row in ROWS if row.name == "CountsDiff").method(Budget(FETUS, 4_062_980))
    assert (method.attrition, method.guidance) == (0.02, 0.5)


def test_rounds_that_go_back_to_the_beginning_are_one():
    """The authors' 3 rounds jump back 20 of 19 steps: to where no count is left, from where the last round starts anew."""
    walk = reverse_walk(N_STEPS, jump_length=20, n_resamples=3)
    assert walk[-N_STEPS:] == reverse_walk(N_STEPS) and walk[-N_STEPS - 1].s == 1.0
    assert all(get_schedule(name).survival(1.0) < 1e-6 for name in ("cosine", "fisher", "blackout"))
    drawn = [row.method(Budget(FETUS, 1000)) for row in ROWS if row.name in ("ReMDM", "Blackout", "CountsDiff")]
    assert [method.n_resamples for method in drawn] == [1, 1, 1]


@pytest.mark.parametrize(("atlas", "n_epochs"), [(FETUS, 1), (HEART, 4)], ids=["fetus", "heart"])
def test_gain_makes_ten_thousand_steps(atlas, n_epochs):
    method = next(row for row in ROWS if row.name == "GAIN").method(Budget(atlas, atlas.n_cells))
    assert method.max_epochs == n_epochs
    assert n_epochs * method.trainer_kwargs["limit_train_batches"] == 10_000


def test_xtrimogene_warms_up_as_long_as_the_authors():
    row = next(row for row in ROWS if row.name == "xTrimoGene")
    assert [row.method(Budget(atlas, atlas.n_cells)).n_warmup_steps for atlas in (FETUS, HEART)] == [9766, 9766]
    assert row.method(Budget(HEART, HEART.n_cells // 10, 0.1)).n_warmup_steps == 977


@pytest.mark.parametrize("name", ["GAIN", "scIDPMs", "HI-VAE (Poisson)", "ReMDM"])
def test_networks_train_on_four_fifths_of_the_cells_and_to_the_end(name):
    rows = [row for row in ROWS if row.name == name]
    assert rows, [row.name for row in ROWS]
    method = rows[0].method(Budget(HEART, 1000, 0.1))
    assert 0.9 * (1 - method.validation_share) == pytest.approx(0.8)
    assert method.patience >= method.max_epochs


def test_scidpms_is_the_original_s_at_full_size_and_ours_below():
    row = next(row for row in ROWS if row.name == "scIDPMs")
    full, small = (row.method(Budget(FETUS, 4_062_980, scale)) for scale in (1, 0.1))
    assert (full.group_size, full.n_layers, full.n_heads, full.n_levels) == (1, 6, 8, 300)
    assert (full.max_epochs, full.batch_size, full.lr, full.eta, full.n_steps) == (65, 72, 5e-4, 1.0, 300)
    assert (full.predicts, full.target_share) == ("noise", 0.8)
    assert (small.group_size, small.n_levels, small.n_steps, small.max_epochs) == (25, 50, 50, 65)


def test_remdm_has_the_backbone_and_the_training_of_countsdiff():
    budget = Budget(FETUS, 4_062_980)
    remdm, countsdiff = (
        next(row for row in ROWS if row.name == name).method(budget) for name in ("ReMDM", "CountsDiff")
    )
    assert remdm.backbone == countsdiff.backbone == "transformer"
    network, training = countsdiff.model_kwargs, countsdiff.train_kwargs
    assert all(getattr(remdm, name) == network[name] for name in ("n_hidden", "n_heads", "n_layers", "p_uncond"))
    assert all(getattr(remdm, name) == training[name] for name in ("batch_size", "ema_decay"))
    assert all(getattr(remdm, name) == training["plan_kwargs"][name] for name in ("lr", "n_warmup_steps"))
    assert (remdm.max_epochs, remdm.known, remdm.n_steps) == (countsdiff.max_epochs, "noised", countsdiff.n_steps)
    assert remdm.quantile == 1.0, "every count has a class"


def test_grids_are_settings_of_sampling():
    """So that all of them share one trained model."""
    for row in ROWS:
        method = row.method(Budget(HEART, 1000, 0.1, weights=Path("somewhere")))
        assert all(replace(method, **point).training_key == method.training_key for point in row.grid)
    assert {row.name for row in ROWS if row.grid} == {"ReMDM", "CountsDiff"}


def test_genes_that_released_weights_do_not_know_do_not_stop_a_recipe():
    row = next(row for row in ROWS if row.name == "scGPT (pretrained)")
    assert row.method(Budget(FETUS, 1000, weights=Path("somewhere"))).unknown_genes == "mean"
