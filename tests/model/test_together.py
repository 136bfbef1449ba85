"""Draws and folds of a few cells are made together, and are what each would be by itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sccountsdiff.model import engine
from sccountsdiff.module import CountsDiffModule


@pytest.fixture
def both_ways(monkeypatch):
    """What a call gives with one draw at a time, and with as many at a time as there are."""

    def _both_ways(call):
        found = []
        for entries in (0, 10**9):
            monkeypatch.setattr(engine, "ENTRIES_TOGETHER", {"cpu": entries})
            found.append(call())
        return found

    return _both_ways


@pytest.mark.parametrize(
    "options",
    [
        {"n_samples": 4},
        {"n_samples": 4, "n_steps": 4, "n_resamples": 2, "attrition": 0.3},
        {"n_samples": 3, "known": "noised", "n_steps": 3},
        {"n_samples": 3, "guidance": 2.0},
        {"n_samples": 3, "attrition": torch.linspace(0, 0.3, 2 * 50).reshape(2, 50, 1), "n_steps": 2},
    ],
    ids=["draws", "resampled", "noised", "guided", "attrition of each cell"],
)
def test_draws_are_the_same_integers(model, sites, both_ways, options):
    alone, together = both_ways(
        lambda: model.impute(
            sites=sites, return_mean=False, key_added=None, seed=1, silent=True, batch_size=20, **options
        )
    )
    assert len({draw.tobytes() for draw in together}) == options["n_samples"]  # and differ from each other
    np.testing.assert_array_equal(alone, together)


def test_an_entry_that_is_asked_for_in_some_cells_only(model, both_ways):
    some = np.zeros(model.adata.shape, dtype=bool)
    some[3, :5] = some[7, 2] = True
    alone, together = both_ways(
        lambda: model.impute(sites=some, n_samples=3, return_mean=False, key_added=None, seed=1, silent=True)
    )
    np.testing.assert_array_equal(alone, together)


@pytest.mark.parametrize("options", [{"n_samples": 0}, {"n_samples": 3}, {"n_samples": 3, "final": "mean"}], ids=str)
def test_folds_and_what_is_said_of_them(model, both_ways, options):
    alone, together = both_ways(
        lambda: model.impute(
            what="zeros", n_folds=4, key_added=None, seed=1, silent=True, batch_size=20, min_value=0, **options
        )
    )
    np.testing.assert_allclose(_dense(alone), _dense(together), rtol=1e-5, atol=1e-6)


def test_transforms_take_turns(model, both_ways):
    types = list(model.adata.obs["cell_type"].cat.categories)
    for options in ({"n_samples": 0}, {"n_samples": 6, "return_mean": False}):
        alone, together = both_ways(
            lambda options=options: model.impute(
                what="zeros", transform_covariates={"cell_type": types}, key_added=None, seed=1, silent=True, **options
            )
        )
        np.testing.assert_allclose(_dense(alone), _dense(together), rtol=1e-5, atol=1e-6)


def test_the_network_is_asked_less_often(model, sites, both_ways, monkeypatch):
    passes, look = [], CountsDiffModule._look_with
    monkeypatch.setattr(
        CountsDiffModule, "_look_with", lambda *args, **kwargs: passes.append(1) or look(*args, **kwargs)
    )

    def calls() -> int:
        passes.clear()
        model.impute(sites=sites, n_samples=6, n_steps=2, key_added=None, silent=True, batch_size=50)
        return len(passes)

    assert both_ways(calls) == [6, 1]


def test_a_network_that_takes_more_memory_draws_less_at_once(model, sites, monkeypatch):
    """On devices of which nothing else is known."""
    monkeypatch.setattr(engine, "ENTRIES_TOGETHER", {})
    monkeypatch.setattr(engine, "BYTES_TOGETHER", 3 * 128 * 50 * model.module.n_genes)
    cells, look = [], CountsDiffModule._look_with
    monkeypatch.setattr(
        CountsDiffModule, "_look_with", lambda *args, **kwargs: cells.append(1) or look(*args, **kwargs)
    )
    for n_bytes, n_passes in ((128, 2), (2 * 128, 6), (10**6, 6)):
        monkeypatch.setattr(type(model.module.denoiser.backbone), "bytes_per_entry", n_bytes)
        cells.clear()
        model.impute(sites=sites, n_samples=6, n_steps=2, key_added=None, silent=True, batch_size=50)
        assert len(cells) == n_passes


def test_a_watched_draw_is_made_alone(model, sites, both_ways):
    def seen() -> list[int]:
        rows = []
        settings = engine.SamplingSettings(n_steps=2).resolve(model.module)
        blocks = engine.fill(
            model.module,
            model._source(),
            np.arange(50),
            lambda rows, counts, missing: sites[rows],
            settings,
            seed=0,
            n_samples=2,
            batch_size=50,
            silent=True,
            on_move=lambda move, x: rows.append(len(x)),
        )
        assert len(list(blocks)) == 1
        return rows

    assert both_ways(seen) == [[50] * 4, [50] * 4]


def _dense(found):
    return found.toarray() if hasattr(found, "toarray") else np.asarray(found)
