"""The whole study writes everything it promises, and trains no model twice."""

import dataclasses

import pandas as pd
import pytest
import torch

from sccountsdiff.benchmark.images import (
    CONFIGS,
    RECIPES,
    ImageDiffusion,
    ImageEvaluator,
    load_images,
    load_model,
    run,
    run_images,
    run_recipe,
    studies,
)
from sccountsdiff.cli import main

SCHEDULES = ("cosine", "fisher", "blackout")


def test_no_schedule_is_trained_twice(tiny_config, digits, tmp_path, monkeypatch):
    trained, configure = [], ImageDiffusion.configure_optimizers
    monkeypatch.setattr(
        ImageDiffusion,
        "configure_optimizers",
        lambda self: trained.append((self.config.schedule, self.config.conditional)) or configure(self),
    )
    config = dataclasses.replace(tiny_config, n_steps=1, schedule="fisher")
    options = {"features": torch.nn.Flatten(), "n_images": 20, "n_heldout": 8, "run_studies": ["schedules"]}
    run_images(config, digits, tmp_path, **options)
    assert sorted(trained) == [("blackout", False), ("blackout", True), ("cosine", False), ("cosine", True),
        ("fisher", False), ("fisher", True)]  # fmt: skip
    table = pd.read_csv(tmp_path / "schedules.csv")
    assert table["schedule"].tolist() == [name for name in SCHEDULES for _ in range(3)]
    model, evaluator = load_model(tmp_path / "last.ckpt"), ImageEvaluator(torch.nn.Flatten(), digits.train)
    expected = studies.compare(model, studies.TABLE[1:], evaluator, digits.train, n_images=20)["frechet"]
    assert table.loc[table["schedule"] == "fisher", "frechet"].tolist()[1:] == pytest.approx(expected.tolist())
    alone = load_model(tmp_path / "schedule_fisher_unconditional" / "last.ckpt")
    assert alone.network.condition is None  # trained as such, not a conditional one that is told nothing
    unguided = studies.compare(alone, studies.TABLE[:1], evaluator, digits.train, n_images=20)
    assert table.loc[table["guidance"] == "uncond", "frechet"].tolist()[1] == pytest.approx(unguided["frechet"][0])


def test_weights_of_inception_are_fetched_if_asked_for(tiny_config, digits, tmp_path, monkeypatch):
    asked = []

    def load(path, *, download):
        asked.append((path, download))
        return torch.nn.Flatten()

    monkeypatch.setattr(run, "load_inception", load)
    config = dataclasses.replace(tiny_config, n_steps=1, dataset="cifar10")  # a set that has no classifier of its own
    run_images(config, digits, tmp_path / "out", download_weights=True, n_images=12, n_heldout=8)
    assert asked == [(None, True)]


def test_without_inception_there_are_losses_and_images_but_no_scores(tiny_config, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    config = dataclasses.replace(tiny_config, n_steps=1, dataset="cifar10")  # a set that has no classifier of its own
    assert run_images(config, load_images("digits"), tmp_path / "out", n_images=12, n_heldout=8).empty
    assert "No Frechet distance" in caplog.text
    assert (tmp_path / "out" / "losses.csv").is_file() and not (tmp_path / "out" / "scores.csv").exists()
    with pytest.raises(ValueError, match="needs scores"):
        run_images(config, load_images("digits"), tmp_path / "out", run_studies=["guidance"])
    with pytest.raises(FileNotFoundError, match="absent.pth"):
        run_images(config, load_images("digits"), tmp_path / "out", weights_path=tmp_path / "absent.pth")


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    """One folder for all recipes: they share their models."""
    return tmp_path_factory.mktemp("recipes")


class TestRecipes:
    @pytest.fixture
    def run_small(self, small_files, output, pooled, scaled_down):
        def run_small(name, **options):
            splits = load_images(RECIPES[name].dataset, small_files[RECIPES[name].dataset])
            fixed = {"features": pooled, "n_images": 10, "n_heldout": 4, "resume": True, "changes": scaled_down}
            return run_recipe(name, splits, output, **fixed | options)

        return run_small

    @pytest.mark.parametrize("name", RECIPES)
    def test_every_recipe_runs_to_its_end(self, name, run_small, output, capsys, monkeypatch):
        recipe = RECIPES[name]
        table = run_small(name, progress=True)
        assert "Sampling" in capsys.readouterr().err
        if recipe.rows:
            assert table["settings"].tolist() == [row.config for row in recipe.rows]
            expected = ["uncond" if row.trial.guidance is None else row.trial.guidance for row in recipe.rows]
            assert table["guidance"].tolist() == expected
            assert table["attrition"].tolist() == [row.trial.attrition for row in recipe.rows]
            assert table["paper_frechet"].tolist() == [row.frechet for row in recipe.rows]
            assert table["frechet"].notna().all() and len(pd.read_csv(output / f"{name}.csv")) == len(recipe.rows)
        else:
            assert (output / f"{name}.png").stat().st_size > 1000
        for config in recipe.configs:
            model = load_model(output / (f"{name}_{config}" if recipe.changes else config) / "last.ckpt")
            assert (model.network.condition is None) == (not model.config.conditional)
        # Once more: nothing is trained or drawn again, but the grids of figures.
        monkeypatch.setattr(ImageDiffusion, "configure_optimizers", lambda self: pytest.fail("trained again"))
        if recipe.rows:
            monkeypatch.setattr("sccountsdiff.benchmark.images.generation.sample", lambda *a, **k: pytest.fail("drawn"))
        pd.testing.assert_frame_equal(run_small(name), table)

    def test_an_interrupted_recipe_goes_on(self, small_files, tmp_path, monkeypatch, pooled, scaled_down):
        """Killed while the second row is drawn, then continued: the same table."""
        splits = load_images("cifar10", small_files["cifar10"])
        fixed = {"features": pooled, "n_images": 10, "n_heldout": 4, "changes": scaled_down}
        whole = run_recipe("cifar10_attrition", splits, tmp_path / "whole", **fixed)
        compare, calls = studies.compare, []

        def fail_at_second(*args, **kwargs):
            calls.append(args)
            if len(calls) == 2:
                raise KeyboardInterrupt
            return compare(*args, **kwargs)

        with monkeypatch.context() as patch:
            patch.setattr(studies, "compare", fail_at_second)
            with pytest.raises(KeyboardInterrupt):
                run_recipe("cifar10_attrition", splits, tmp_path / "killed", **fixed)
        assert len(pd.read_csv(tmp_path / "killed" / "cifar10_attrition.csv")) == 1
        again = run_recipe("cifar10_attrition", splits, tmp_path / "killed", resume=True, **fixed)
        pd.testing.assert_frame_equal(again, whole)

    def test_a_dry_run_says_what_it_takes_and_writes_nothing(self, small_files, tmp_path, capsys, pooled):
        splits = load_images("celeba", small_files["celeba"])
        options = {"features": pooled, "dry_run": True, "precision": "bf16-mixed"}
        plans = run_recipe("celeba_30m", splits, tmp_path / "out", **options)
        assert list(plans.index) == ["celeba_30m_fisher", "celeba_30m"] and not (tmp_path / "out").exists()
        assert plans["parameters"].tolist()[0] == pytest.approx(36e6, rel=0.01)
        text = capsys.readouterr().out
        assert all(part in text for part in ("12 to train on", "12 held out", "parameters", "A100", "assume", "memory"))

    def test_scores_are_needed_and_missing_weights_are_named_before_any_work(self, small_files, tmp_path, monkeypatch):
        monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
        splits = load_images("cifar10", small_files["cifar10"])
        with pytest.raises(ValueError, match="needs scores"):
            run_recipe("cifar10_table", splits, tmp_path / "out")
        with pytest.raises(KeyError, match="known: cifar10_table"):
            run_recipe("cifar10", splits, tmp_path / "out")
        assert not (tmp_path / "out").exists()

    def test_figures_need_no_scores(self, small_files, tmp_path, monkeypatch, scaled_down):
        monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
        splits = load_images("cifar10", small_files["cifar10"])
        run_recipe("cifar10_classes", splits, tmp_path / "out", n_heldout=4, changes=scaled_down)
        assert (tmp_path / "out" / "cifar10_classes.png").is_file()


def test_a_dry_run_checks_and_writes_nothing(tiny_config, digits, tmp_path, capsys):
    plans = run_images(tiny_config, digits, tmp_path / "out", dry_run=True)
    assert not (tmp_path / "out").exists() and plans.loc["digits", "hours_A100"] > 0
    assert "1,500 to train on and 297 held out" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_images": -1}, "`n_images` must be a whole number of at least 10"), ({"n_images": 9}, "`n_images` must"),
        ({"precision": "bf8"}, "`precision` must be"), ({"reference": "test"}, "`reference` must be"),
        ({"devices": 0}, "`devices` must"), ({"accelerator": "tpu"}, "`accelerator` must"),
        ({"run_studies": ["colour"]}, "Unknown studies: colour"),
    ],
)  # fmt: skip
def test_mistakes_are_named_before_any_work(tiny_config, digits, tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        run_images(tiny_config, digits, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_a_batch_that_devices_cannot_share_is_named_before_any_work(tiny_config, digits, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    with pytest.raises(ValueError, match="`batch_size` 16 cannot be shared evenly by 3 `devices`"):
        run_images(tiny_config, digits, tmp_path / "out", accelerator="cuda", devices="0,1,3")
    assert not (tmp_path / "out").exists()


def test_images_are_compared_with_those_that_were_asked_for(tiny_config, digits, tmp_path, monkeypatch, pooled):
    real = []
    monkeypatch.setattr(
        run, "ImageEvaluator", lambda network, data, **kw: real.append(len(data)) or ImageEvaluator(network, data, **kw)
    )
    config = dataclasses.replace(tiny_config, n_steps=1)
    for reference in ("train", "heldout"):
        run_images(config, digits, tmp_path / reference, features=pooled, n_images=10, reference=reference)
    assert real == [1500, 297]


def test_a_dry_run_of_the_command_prints_the_plan_and_starts_nothing(tmp_path, capsys, small_files):
    output = ["--output", str(tmp_path / "out"), "--dry-run"]
    assert main(["benchmark", "images", *output]) == 0
    recipe = ["--recipe", "cifar10_attrition", "--data", str(small_files["cifar10"]), "--precision", "bf16-mixed"]
    assert main(["benchmark", "images", *recipe, *output]) == 0
    text = "".join(capsys.readouterr())
    assert "58.69 M" in text and "hours, 1 x A100" in text and "24 to train on and 12 held out" in text
    assert not (tmp_path / "out").exists()


def test_a_recipe_runs_by_its_name(tmp_path, capsys, monkeypatch, small_files, pooled):
    monkeypatch.setattr(run, "load_inception", lambda path, *, download: pooled)
    changes = {"channels": (8, 8), "layers_per_block": 1}
    monkeypatch.setitem(CONFIGS, "celeba", dataclasses.replace(CONFIGS["celeba"], **changes))
    flags = "--steps 1 --batch-size 4 --sampling-steps 2 --evaluated 10 --images 10".split()
    arguments = ["--recipe", "celeba_60m", "--data", str(small_files["celeba"]), *flags, "--output", str(tmp_path)]
    assert main(["benchmark", "images", *arguments]) == 0
    assert pd.read_csv(tmp_path / "celeba_60m.csv")[["guidance", "attrition"]].to_numpy().tolist() == [[1.5, 0.005]]
    assert "paper_frechet" in capsys.readouterr().out
