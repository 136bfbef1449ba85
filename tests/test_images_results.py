"""What the documentation says of the saved image results is what they say."""

import re
from pathlib import Path

import pandas as pd
import pytest

DOCS = Path(__file__).parents[1] / "docs"


def read(name: str) -> pd.DataFrame:
    return pd.read_csv(DOCS / "benchmarks" / "results" / f"images_{name}.csv")


def test_page_shows_files_that_are_there():
    page = (DOCS / "images.md").read_text()
    shown = re.findall(r":file: (\S+)|\]\((_static/\S+\.png)\)", page)
    assert len(shown) >= 6
    for table, picture in shown:
        assert (DOCS / (table or picture)).stat().st_size > 50


def test_digits_follow_guidance():
    scores = read("digits_scores").set_index("guidance")
    assert scores.loc[0, "agreement"] < 0.2
    assert scores.loc[1, "agreement"] == 0.98 and scores.loc[2, "agreement"] == 1
    assert 4.5 < scores.loc[2, "frechet"] / scores.loc[1, "frechet"] < 5
    assert (scores["n_images"] == 500).all() and (scores["agreement_real"] > 0.95).all()


def test_sweeps_on_digits():
    guidance, attrition = read("digits_guidance").set_index("guidance"), read("digits_attrition")
    assert guidance["agreement"].is_monotonic_increasing and guidance["frechet"].idxmin() == 1
    assert guidance.loc[2, "inception_score"] > guidance.loc[1, "inception_score"] > guidance.loc[0, "inception_score"]
    assert attrition["frechet"].max() - attrition["frechet"].min() < 3 and (attrition["agreement"] > 0.98).all()


def test_digits_get_better_through_training():
    history = read("digits_history").set_index("step")
    assert history["heldout_loss"].is_monotonic_decreasing
    assert round(history.loc[0, "frechet"]) == 468 and round(history.loc[300, "frechet"]) == 14
    assert (history.loc[300:, "frechet"] < 16).all()


@pytest.mark.parametrize("name", ["digits", "cifar10"])
def test_network_beats_predictions_from_single_pixels(name):
    if name == "digits":
        losses = read("digits_losses").set_index("predictor")["heldout_loss"]
    else:
        losses = read("cifar10").iloc[0].filter(like="loss_").rename(lambda column: column.removeprefix("loss_"))
    assert losses["network"] < losses["linear_guess"] < losses["pixel_mean"]


def test_cifar10_resumes_bit_for_bit_and_stays_in_range():
    row = read("cifar10").iloc[0]
    assert row["resumed_is_equal"] and row["smallest_pixel"] >= 0 and row["largest_pixel"] <= 255
    assert row["loss_network"] < row["loss_at_first_evaluation"]


def test_full_size_models_have_the_paper_s_size():
    table = read("full_size").set_index("settings")
    assert table.loc["cifar10_cosine", "parameters"] / 1e6 == pytest.approx(30, rel=0.2)
    assert table.loc["celeba", "parameters"] / 1e6 == pytest.approx(60, rel=0.05)
    assert (table["tensors_changed"] > 0.95 * table["tensors"]).all() and table["loss_before_second_step"].notna().all()


def test_the_cosine_schedule_is_the_best_on_digits():
    table = read("digits_schedules")
    best = table.loc[table.groupby("guidance")["frechet"].idxmin()]
    assert len(best) == 3 and (best["schedule"] == "cosine").all()


def test_page_states_the_sizes_of_the_full_size_networks():
    page = re.sub(r"\s+", " ", (DOCS / "images.md").read_text())
    millions = read("full_size").set_index("settings")["parameters"] / 1e6
    assert f"They have {millions['cifar10_cosine']:.1f} million parameters for CIFAR-10" in page
    assert f"{millions['celeba_30m']:.1f} million for the smaller CelebA model" in page
    assert f"the larger one has {millions['celeba']:.1f} million" in page
