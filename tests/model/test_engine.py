"""The same integers in whatever order blocks are done, each of them with random numbers of its own."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scvi import settings as scvi_settings

from sccountsdiff.diffusion import NOISED, Blackout, Cosine, step_times
from sccountsdiff.model.engine import (
    N_CHAIN_STEPS,
    N_CHAINS,
    choose_batch_size,
    choose_seed,
    every_entry,
    expectation_settings,
    fill,
    make_generator,
)
from sccountsdiff.model.settings import SamplingSettings
from sccountsdiff.module import CountsDiffModule

FORMATS = {
    "dense": np.asarray,
    "csr_matrix": sp.csr_matrix,
    "csr_array": sp.csr_array,
    "csc_matrix": sp.csc_matrix,
    "csc_array": sp.csc_array,
}
DTYPES = ["int32", "int64", "float32", "float64"]
MEAN = {"n_steps": 1, "final": "mean"}


def test_expectations_are_checked_where_they_are_asked_for(trained, query, sites, monkeypatch):
    """What the network says of other entries, for which it is not trained, may be anything."""

    def runaway(module, cells, status, guidance):
        return torch.where((status == NOISED) == at_sites, torch.inf, 1.0)

    monkeypatch.setattr("sccountsdiff.model.engine.expected_counts", runaway)
    at_sites = False
    trained.impute(query, sites=sites, n_samples=0, key_added=None, silent=True)
    at_sites = True
    with pytest.raises(ValueError, match="it has run away"):
        trained.impute(query, sites=sites, n_samples=0, key_added=None, silent=True)


class TestFill:
    @pytest.fixture
    def filled(self, trained, query, sites):
        """``fill`` of the trained model: the entries named by ``sites``, in blocks of 16."""
        source = trained._source(query)

        def _filled(rows=np.arange(50), choose=lambda rows, counts, missing: sites[rows], **kwargs):
            settings = SamplingSettings(n_steps=2).resolve(trained.module)
            options = {"seed": 0, "n_samples": 2, "batch_size": 16, "silent": True} | kwargs
            return list(fill(trained.module, source, rows, choose, settings, **options))

        return _filled

    def test_blocks_hold_counts_sites_and_draws(self, filled, query, sites):
        blocks = filled()
        assert [len(block.counts) for block in blocks] == [16, 16, 16, 2]
        np.testing.assert_array_equal(np.concatenate([block.counts for block in blocks]), query.X.toarray())
        np.testing.assert_array_equal(np.concatenate([block.sites for block in blocks]), sites)
        for block in blocks:
            assert block.values.shape == (2, block.sites.sum())
            assert (block.values == np.rint(block.values)).all()

    @pytest.mark.parametrize("n_folds", [1, 3])
    @pytest.mark.parametrize("rows", [range(16, 32), [*range(32, 48), *range(16)], range(48, 50)], ids=str)
    def test_whole_blocks_are_the_same_whichever_others_are_asked_for(self, filled, n_folds, rows):
        everything = filled(n_folds=n_folds)
        for block, number in zip(
            filled(np.sort(rows), n_folds=n_folds), sorted({row // 16 for row in rows}), strict=True
        ):
            np.testing.assert_array_equal(block.values, everything[number].values)

    def test_nothing_to_fill_in(self, filled):
        for block in filled(choose=lambda rows, counts, missing: np.zeros(missing.shape, dtype=bool)):
            assert block.values.shape == (2, 0)

    def test_every_entry_is_drawn_once_over_the_folds(self, filled, spy):
        filled(choose=every_entry, n_folds=4, n_samples=1, batch_size=50)
        assert len(spy) == 4
        np.testing.assert_array_equal(sum(status == NOISED for status in spy), 1)

    def test_sites_are_chosen_from_what_is_read(self, filled, query):
        asked = []

        def choose(rows, counts, missing):
            asked.extend(rows)
            np.testing.assert_array_equal(counts, query.X.toarray()[rows])
            assert not missing.any()
            return counts == 0

        filled(np.array([3, 20, 21, 49]), choose)
        assert asked == [3, 20, 21, 49]


class TestChoices:
    def test_generators_are_those_of_their_keys(self):
        keys = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 1, 2), (0, 2, 1)]
        draw = lambda key: torch.rand(3, generator=make_generator(torch.device("cpu"), *key)).tolist()
        numbers = [draw(key) for key in keys]
        assert numbers == [draw(key) for key in keys]
        assert len({tuple(some) for some in numbers}) == len(keys)

    def test_batch_size(self, monkeypatch):
        assert choose_batch_size(7) == 7
        monkeypatch.setattr(scvi_settings, "batch_size", 33)
        assert choose_batch_size(None) == 33
        with pytest.raises(ValueError, match="`batch_size` must be a whole number of at least 1, not 0"):
            choose_batch_size(0)

    def test_seed(self, seeded):
        assert choose_seed(np.int64(5)) == 5 and choose_seed(0) == 0
        drawn = []
        for seed in (4, 4, 5):
            with seeded(seed):
                drawn.append(choose_seed(None))
        assert drawn[0] == drawn[1] != drawn[2]

    def test_expectations_take_one_pass_where_the_model_allows(self):
        small = {"n_categories": [2], "backbone_kwargs": {"n_hidden": 4, "n_layers": 1}}
        settings, n_chains = expectation_settings(CountsDiffModule(np.ones(5), **small), 2.0)
        assert settings.is_deterministic and n_chains == 1
        assert settings.guidance == 2 and settings.known == "clean"
        for schedule, n_steps in (("cosine", N_CHAIN_STEPS), (Blackout(n_grid=5), 4)):
            paper = CountsDiffModule(np.ones(5), schedule=schedule, observed_training=False, **small)
            settings, n_chains = expectation_settings(paper, 1.0)
            assert (settings.n_steps, settings.final, settings.known) == (n_steps, "mean", "noised")
            assert n_chains == N_CHAINS


class TestIndices:
    @pytest.mark.parametrize("indices", [slice(None, None, -7), [5, 5, 2, 5], [-1, 0, -50], np.arange(50) % 7 == 0])
    def test_come_back_in_the_order_asked_for(self, impute, query, sites, indices):
        rows = np.arange(50)[indices]
        mean = impute(query, sites=sites, **MEAN).toarray()
        np.testing.assert_allclose(impute(query, indices, sites=sites, **MEAN).toarray(), mean[rows], rtol=1e-5)
        draws = impute(query, indices, sites=sites, return_mean=False)
        assert draws.shape == (2, len(rows), query.n_vars)
        np.testing.assert_array_equal(draws[0][~sites[rows]], query.X.toarray()[rows][~sites[rows]])

    def test_may_be_names(self, impute, query, sites):
        by_position = impute(query, [4, 40, 4], sites=sites, return_mean=False)
        by_name = impute(query, ["cell4", "cell40", "cell4"], sites=sites, return_mean=False)
        np.testing.assert_array_equal(by_name, by_position)

    @pytest.mark.parametrize("indices", [[], [50], ["cell50"], np.ones(49, dtype=bool), 3])
    def test_refuses_cells_that_are_not_there_before_any_work(self, impute, query, spy, indices):
        with pytest.raises((ValueError, IndexError, KeyError), match="`indices`"):
            impute(query, indices)
        assert not spy


class TestRepeatability:
    def test_seed_and_batch_size_decide(self, impute, query, sites):
        draws = impute(query, sites=sites, return_mean=False)
        np.testing.assert_array_equal(draws, impute(query, sites=sites, return_mean=False))
        assert (draws != impute(query, sites=sites, return_mean=False, seed=1)).any()

    def test_without_a_seed_the_global_one_decides_and_is_noted(self, model, sites, seeded):
        draws = []
        for seed in (4, 4, 5):
            with seeded(seed):
                draws.append(model.impute(sites=sites, n_samples=1, n_steps=2, silent=True).toarray())
        np.testing.assert_array_equal(draws[0], draws[1])
        assert (draws[0] != draws[2]).any()
        noted = model.adata.uns["sccountsdiff"]["imputed"]["seed"]
        again = model.impute(sites=sites, n_samples=1, n_steps=2, silent=True, seed=noted)
        np.testing.assert_array_equal(draws[2], again.toarray())

    def test_the_default_type_of_torch_does_not_matter(self, trained, impute, query):
        before = impute(query, return_mean=False), trained.generate(5, n_steps=2, seed=0, silent=True).X.toarray()
        torch.set_default_dtype(torch.float64)
        try:
            after = impute(query, return_mean=False), trained.generate(5, n_steps=2, seed=0, silent=True).X.toarray()
        finally:
            torch.set_default_dtype(torch.float32)
        for first, second in zip(before, after, strict=True):
            np.testing.assert_array_equal(first, second)

    @pytest.mark.parametrize("kind", ["sites", "zeros"])
    def test_blocks_may_be_done_in_any_order_or_alone(self, impute, query, sites, kind):
        kwargs = {"return_mean": False, "sites": sites if kind == "sites" else None}
        full = impute(query, **kwargs)  # blocks of 16: rows 0-15, 16-31, 32-47, 48-49
        for blocks in ([3, 1], [2], [1, 0, 2, 3]):
            rows = np.concatenate([np.arange(16 * b, min(16 * b + 16, 50)) for b in blocks])
            np.testing.assert_array_equal(impute(query, rows, **kwargs), full[:, rows])
            np.testing.assert_array_equal(impute(query, rows[::-1], **kwargs), full[:, rows[::-1]])

    @pytest.mark.parametrize("kind", ["sites", "zeros"])
    def test_a_draw_does_not_depend_on_how_many_there_are(self, impute, query, sites, kind):
        kwargs = {"return_mean": False, "sites": sites if kind == "sites" else None}
        three = impute(query, n_samples=3, **kwargs)
        np.testing.assert_array_equal(three[:2], impute(query, n_samples=2, **kwargs))
        np.testing.assert_array_equal(three[:1], impute(query, n_samples=1, **kwargs))

    def test_blocks_and_draws_have_random_numbers_of_their_own(self, impute, query, sites):
        rows = np.tile(np.arange(16), 3)  # the same cells in each of three blocks
        draws = impute(query[rows].copy(), sites=sites[rows], return_mean=False, n_samples=3)[:, sites[rows]]
        streams = draws.reshape(9, -1)
        agreement = [(streams[i] == streams[j]).mean() for i in range(9) for j in range(i)]
        assert max(agreement) < 0.8

    def test_format_and_type_do_not_matter(self, impute, query, sites, dense):
        expected = impute(query, sites=sites).toarray()
        counts = query.X.toarray()
        for make in FORMATS.values():
            for dtype in DTYPES:
                query.X = make(counts.astype(dtype))
                np.testing.assert_array_equal(dense(impute(query, sites=sites)), expected)


class TestAttrition:
    """Blocks of 16 cells: rows 0-15, 16-31, 32-47, 48-49."""

    def test_of_each_cell_is_found_in_every_block(self, impute, query, sites):
        kwargs = {"sites": sites, "n_steps": 3, "return_mean": False}
        rates = torch.full((3, 50, 20), 0.5)
        np.testing.assert_array_equal(
            impute(query, attrition=rates, **kwargs), impute(query, attrition=torch.full((3,), 0.5), **kwargs)
        )
        none = impute(query, attrition=0.0, **kwargs)
        rates = torch.zeros(3, 50, 20)
        rates[:, 20] = 1.0
        one = impute(query, attrition=rates, **kwargs)
        in_block = (np.arange(50) // 16) == 1  # which shares its random numbers
        np.testing.assert_array_equal(one[:, ~in_block], none[:, ~in_block])
        assert (one[:, in_block] != none[:, in_block]).any()
        rows = np.arange(16, 32)
        np.testing.assert_array_equal(impute(query, rows, attrition=rates, **kwargs), one[:, rows])


class TestProgress:
    def test_says_what_is_done(self, trained, query, sites, capsys):
        for work, what in (
            (lambda: trained.impute(query, sites=sites, n_samples=1, n_steps=1), "Imputing"),
            (lambda: trained.get_normalized_expression(query, n_folds=1), "Expectation"),
            (lambda: trained.posterior_predictive_sample(query, n_steps=1, n_folds=1), "Predictive draws"),
            (lambda: trained.denoise(query), "Denoising"),
        ):
            work()
            assert capsys.readouterr().err.strip().startswith(what)


class TestOnMove:
    """Watching a draw being made changes nothing of it, and shows all of it."""

    def test_imputation_is_watched_from_nothing_to_what_is_returned(self, model, sites, dense, watch):
        seen, on_move = watch
        options = {"sites": sites, "n_samples": 1, "n_steps": 4, "seed": 3, "key_added": None, "silent": True}
        unwatched = dense(model.impute(**options))
        watched = dense(model.impute(**options, on_move=on_move))
        np.testing.assert_array_equal(watched, unwatched)
        times = step_times(Cosine(), 4, "geometric")
        assert [(move.t, move.s) for move, _ in seen] == list(pairwise(times))
        np.testing.assert_array_equal(seen[-1][1][sites], watched[sites])
        assert all((state[~sites] == 0).all() for _, state in seen), "only what is filled in moves"

    def test_each_block_and_draw_is_watched_in_turn(self, model, sites, watch):
        seen, on_move = watch
        draws = model.impute(
            sites=sites, n_samples=2, n_steps=3, batch_size=30, return_mean=False, key_added=None, silent=True, on_move=on_move
        )  # fmt: skip
        assert [state.shape[0] for _, state in seen] == [30] * 6 + [20] * 6
        ends = [state for move, state in seen if move.s == 0]
        for k in range(2):
            np.testing.assert_array_equal(np.concatenate([ends[k], ends[2 + k]])[sites], draws[k][sites])

    def test_generation_is_watched(self, model, watch):
        seen, on_move = watch
        cells = model.generate(5, n_steps=3, seed=0, silent=True, on_move=on_move)
        assert [move.s for move, _ in seen] == pytest.approx([2 / 3, 1 / 3, 0])
        np.testing.assert_array_equal(seen[-1][1], cells.X.toarray())


CALLS = {
    "impute": lambda model, query: model.impute(query, what="zeros", n_folds=2, key_added=None, silent=True),
    "denoise": lambda model, query: model.denoise(query, depth=2.0, silent=True),
    "get_normalized_expression": lambda model, query: model.get_normalized_expression(query, silent=True),
    "generate": lambda model, query: model.generate(20, n_steps=2, seed=0, silent=True).X,
}


class TestHalfPrecision:
    """``torch.autocast`` around a call holds for the passes of the network within it, and for these only."""

    @pytest.mark.parametrize("name", CALLS)
    def test_around_a_call(self, name, trained, query, dense, monkeypatch):
        seen, forward = [], type(trained.module.denoiser.backbone).forward

        def watched(*given, **options):
            outputs = forward(*given, **options)
            seen.append(outputs.dtype)
            return outputs

        monkeypatch.setattr(type(trained.module.denoiser.backbone), "forward", watched)
        found = []
        for enabled in (False, True):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
                found.append(np.asarray(dense(CALLS[name](trained, query))))
        half = len(seen) // 2
        assert set(seen[:half]) == {torch.float32} and set(seen[half:]) == {torch.bfloat16}
        assert found[0].dtype == found[1].dtype and np.isfinite(found[1]).all()
        np.testing.assert_allclose(found[1].mean(0), found[0].mean(0), rtol=0.3, atol=0.5)
