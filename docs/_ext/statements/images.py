"""Images."""

from __future__ import annotations

from results import number, read

from statements.registry import claim, value


@claim
def sweeps_on_digits() -> bool:
    """Agreement rises with guidance, the inception score is higher from 1 on, the Fréchet distance smallest at 1."""
    table = read("images_digits_guidance").set_index("guidance")
    inception = table["inception_score"]
    return bool(
        table["agreement"].is_monotonic_increasing
        and inception[inception.index >= 1].min() > inception[inception.index < 1].max()
        and table["frechet"].idxmin() == 1
    )


@claim
def agreement_is_at_chance() -> bool:
    """Without guidance about one image in ten shows the digit that was asked for."""
    return bool(0.05 < number("images_digits_scores", "agreement", guidance=0) < 0.15)


@claim
def cosine_is_best_in_each_row() -> bool:
    """Smallest Fréchet distance of the three schedules, for each guidance."""
    table = read("images_digits_schedules")
    best_rows = table.loc[table.groupby("guidance")["frechet"].idxmin()]
    return len(best_rows) == 2 and bool((best_rows["schedule"] == "cosine").all())


@value
def frechet_ratio() -> str:
    """Fréchet distance at guidance 2 over that at guidance 1."""
    values = read("images_digits_scores").set_index("guidance")["frechet"]
    return f"{values[2] / values[1]:.1f}"


@claim
def digits_get_better_through_training() -> bool:
    """The held-out loss falls at every evaluation; after the first 300 steps the Fréchet distance stays below 16."""
    history = read("images_digits_history").set_index("step")
    return bool(history["heldout_loss"].is_monotonic_decreasing and (history.loc[300:, "frechet"] < 16).all())


@claim
def all_weights_but_at_most_one_changed() -> bool:
    """After two optimiser steps of each full-size model."""
    table = read("images_full_size")
    return bool((table["tensors"] - table["tensors_changed"] <= 1).all())


@claim
def network_beats_single_pixels(table: str) -> bool:
    """The held-out loss is below those of the mean of each pixel and of the linear guess."""
    if table == "images_cifar10":
        losses = read(table).iloc[0].filter(like="loss_").rename(lambda column: column.removeprefix("loss_"))
    else:
        losses = read(table).set_index("predictor")["heldout_loss"]
    return bool(losses["network"] < losses["linear_guess"] < losses["pixel_mean"])


@claim
def cifar10_resumes_and_stays_in_range() -> bool:
    """Equal weights after going on from a checkpoint, and pixels within 0 and 255."""
    row = read("images_cifar10").iloc[0]
    return bool(row["resumed_is_equal"] and row["smallest_pixel"] >= 0 and row["largest_pixel"] <= 255)


@claim
def full_size_goes_on_after_interruptions() -> bool:
    """Training continued, a finished block of images was read again, and the images are those of one run."""
    row = read("images_full").iloc[0]
    flags = ("kept_block_was_read_again", "images_are_those_of_an_uninterrupted_run", "average_differs_from_weights")
    return bool(
        0 < row["resumed_at"] < row["steps"] and row["blocks_kept_when_interrupted"] > 0 and row[list(flags)].all()
    )


@claim
def full_size_loss_falls() -> bool:
    """The held-out loss of the averaged weights falls at every evaluation, before and after the interruption."""
    return bool(read("images_full_history")["heldout_loss"].is_monotonic_decreasing)


@claim
def full_size_is_above_single_pixels() -> bool:
    """The full-size network has not learnt more than the mean of each pixel."""
    row = read("images_full").iloc[0]
    return bool(row["loss_network"] > row["loss_pixel_mean"])
