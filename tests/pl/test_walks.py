import numpy as np
import pytest
from matplotlib.colors import to_rgb

from sccountsdiff import CountsDiffImputer, pl
from sccountsdiff.pl.figure import ORANGE


def shown(ax):
    """What the heat map shows, with the names of its rows."""
    return [label.get_text() for label in ax.get_yticklabels()], np.asarray(ax.images[0].get_array())


class TestForward:
    def test_goes_from_the_cell_to_nothing_and_never_up(self, model, dense, ax):
        pl.forward_walk(model, 7, n_steps=6, ax=ax)
        genes, values = shown(ax)
        cell = dense(model.adata.X)[7]
        assert values.shape == (20, 7)
        np.testing.assert_array_equal(values[:, 0], cell[model.adata.var_names.get_indexer(genes)])
        assert (np.diff(values[:, 0]) <= 0).all(), "highest genes first"
        assert (values[:, -1] == 0).all() and (np.diff(values, axis=1) <= 0).all()
        assert (values == np.rint(values)).all()

    def test_thins_to_the_share_of_the_schedule(self, model, ax):
        model.adata.X[0] = 10_000
        pl.forward_walk(model, 0, n_steps=4, ax=ax)
        share = shown(ax)[1].mean(0) / 10_000
        p = np.cos(np.pi / 2 * np.linspace(0, 1, 5)) ** 2
        # 20 genes of 10,000 counts: four standard errors of a share of 200,000 are below .005.
        np.testing.assert_allclose(share, p, atol=0.005)

    def test_seed_decides(self, model):
        walks = [shown(pl.forward_walk(model, 1, seed=seed, show=False))[1] for seed in (0, 0, 1)]
        np.testing.assert_array_equal(walks[0], walks[1])
        assert (walks[0] != walks[2]).any()


class TestReverse:
    GENES = ("gene3", "gene11", "gene0", "gene5")

    def test_hidden_genes_are_born_and_observed_ones_stay(self, model, dense, ax):
        pl.reverse_walk(model, "cell4", self.GENES, hidden=["gene11", "gene5", "gene1"], n_steps=5, seed=2, ax=ax)
        genes, values = shown(ax)
        assert genes == ["gene3", "gene0", "gene11", "gene5"], "observed first"
        cell = dense(model.adata.X)[4][model.adata.var_names.get_indexer(genes)]
        np.testing.assert_array_equal(values[:, -1], cell)
        np.testing.assert_array_equal(values[:2], np.repeat(cell[:2, None], 7, axis=1))
        assert (values[2:, 0] == 0).all(), "nothing at t = 1"
        colours = [to_rgb(label.get_color()) == to_rgb(ORANGE) for label in ax.get_yticklabels()]
        assert colours == [False, False, True, True]
        labels = [label.get_text() for label in ax.get_xticklabels()]
        assert labels == ["1", "0.8", "0.6", "0.4", "0.2", "0", "truth"]

    def test_ends_at_what_imputation_returns(self, model, dense, ax):
        sites = np.zeros(model.adata.shape, dtype=bool)
        sites[9, 5:12] = True
        hidden = list(model.adata.var_names[5:12])
        pl.reverse_walk(model, 9, hidden, hidden=hidden, n_steps=6, seed=8, ax=ax, attrition=0.1)
        options = {
            "n_samples": 1,
            "n_steps": 6,
            "spacing": "even",
            "seed": 8,
            "attrition": 0.1,
            "key_added": None,
            "silent": True,
        }
        imputed = dense(model.impute(indices=[9], sites=sites, **options))
        np.testing.assert_array_equal(shown(ax)[1][:, -2], imputed[0, 5:12])

    def test_share_is_hidden_at_random_and_nothing_is_written(self, model):
        layers = set(model.adata.layers)
        ax = pl.reverse_walk(model, 0, hidden=1.0, n_steps=2, show=False)
        assert all(to_rgb(label.get_color()) == to_rgb(ORANGE) for label in ax.get_yticklabels())
        some = [
            [to_rgb(label.get_color()) == to_rgb(ORANGE) for label in pl.reverse_walk(model, 0, seed=s, show=False).get_yticklabels()]
            for s in range(5)
        ]  # fmt: skip
        # 100 genes, each hidden with probability a half: five standard errors are .25.
        assert 0.25 < np.mean(some) < 0.75
        assert set(model.adata.layers) == layers and "sccountsdiff" not in model.adata.uns

    def test_long_walks_label_few_columns(self, model, ax):
        pl.reverse_walk(model, 0, n_steps=50, ax=ax)
        labels = [label.get_text() for label in ax.get_xticklabels()]
        assert len(labels) == 52 and labels[-1] == "truth"
        assert sum(label != "" for label in labels) <= 21


class TestMissing:
    """Of the first four genes: one under a False in the mask, one NaN, two observed."""

    GENES = ("gene0", "gene1", "gene2", "gene3")

    @pytest.fixture
    def masked(self, simulate, train):
        adata = simulate(20).adata
        adata.X = adata.X.toarray()
        adata.X[:, :4] = [[999, 7, 7, 7]]
        adata.X[0, 1] = np.nan
        adata.layers["observed"] = np.ones(adata.shape, dtype=bool)
        adata.layers["observed"][0, 0] = False
        CountsDiffImputer.setup_anndata(adata, mask_layer="observed")
        return train(adata)

    def test_is_blank_on_the_way_into_the_noise(self, masked, ax):
        pl.forward_walk(masked, 0, self.GENES, n_steps=3, ax=ax)
        values = shown(ax)[1]
        assert np.isnan(values[:2]).all() and not np.isnan(values[2:]).any()
        assert 999 not in np.nan_to_num(values)

    def test_has_no_truth_on_the_way_back(self, masked, ax):
        pl.reverse_walk(masked, 0, self.GENES, hidden=["gene1", "gene3"], n_steps=3, ax=ax)
        genes, values = shown(ax)
        assert genes == ["gene0", "gene2", "gene1", "gene3"]
        observed_missing, observed, hidden_missing, hidden = values
        assert np.isnan(observed_missing).all()
        assert (observed == 7).all()
        assert np.isnan(hidden_missing[-1]) and not np.isnan(hidden_missing[:-1]).any(), "filled in, truth unknown"
        assert hidden[-1] == 7 and not np.isnan(hidden).any()

    def test_nothing_but_missing_counts(self, masked, ax):
        pl.forward_walk(masked, 0, ["gene0", "gene1"], n_steps=2, ax=ax)
        assert np.isnan(shown(ax)[1]).all()

    def test_zeros_that_count_as_missing_are_blank(self, simulate, train, dense, ax):
        adata = simulate(20).adata
        CountsDiffImputer.setup_anndata(adata, labels_key="cell_type", zeros="missing")
        model = train(adata, model_kwargs={"observed_training": False})
        pl.forward_walk(model, 0, list(adata.var_names), n_steps=1, ax=ax)
        cell, kind = dense(adata.X)[0], adata.obs["cell_type"].iloc[0]
        expressed = dense(adata.X[(adata.obs["cell_type"] == kind).to_numpy()]).any(0)
        np.testing.assert_array_equal(shown(ax)[1][:, 0], np.where((cell == 0) & expressed, np.nan, cell))


@pytest.mark.parametrize("walk", [pl.forward_walk, pl.reverse_walk])
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"cell": 50}, IndexError, "among the 50 cells, not 50"),
        ({"cell": "nobody"}, KeyError, "'nobody' is not in adata.obs_names"),
        ({"genes": ["gene0", "gen1"]}, KeyError, "no gene 'gen1'"),
    ],
)
def test_what_is_not_there_is_named(model, walk, arguments, error, message):
    with pytest.raises(error, match=message):
        walk(model, **arguments, show=False)


def test_a_share_may_be_a_number_of_numpy(model):
    walks = [shown(pl.reverse_walk(model, 0, hidden=share, n_steps=2, show=False)) for share in (0.5, np.float32(0.5))]
    assert walks[0][0] == walks[1][0]
    np.testing.assert_array_equal(walks[0][1], walks[1][1])


def test_models_trained_on_noised_counts_alone_need_no_more_arguments(simulate, train):
    model = train(simulate(20).adata, model_kwargs={"observed_training": False})
    default, given = (
        shown(pl.reverse_walk(model, 0, n_steps=3, show=False, **known))[1] for known in ({}, {"known": "noised"})
    )
    np.testing.assert_array_equal(default, given)


@pytest.mark.parametrize("argument", ["genes", "hidden"])
def test_one_gene_is_a_list_of_one(model, argument):
    with pytest.raises(ValueError, match=rf"`{argument}` must be a list of genes, not one name: pass \['gene1'\]"):
        pl.reverse_walk(model, **{argument: "gene1"}, show=False)


def test_hidden_genes_must_be_known_and_shares_be_shares(model):
    with pytest.raises(KeyError, match="no gene 'gen1'"):
        pl.reverse_walk(model, hidden=["gen1"], show=False)
    with pytest.raises(ValueError, match="share above 0 and up to 1, not 50"):
        pl.reverse_walk(model, hidden=50, show=False)


def test_a_model_without_data(saved):
    model = CountsDiffImputer.load(saved, adata=False, accelerator="cpu")
    with pytest.raises(ValueError, match="loaded without data"):
        pl.forward_walk(model)


def test_a_name_that_several_cells_have(model):
    model.adata.obs_names = ["twin"] * model.adata.n_obs
    with pytest.raises(ValueError, match="not unique: pass the position"):
        pl.forward_walk(model, "twin", show=False)


def test_an_untrained_model_reads_as_a_trained_one(query):
    """In training mode, a module leaves what it reads where it is, which need not be its own device."""
    CountsDiffImputer.setup_anndata(query)
    model = CountsDiffImputer(query)
    assert model.module.training
    pl.forward_walk(model, 0, show=False)
    assert not model.module.training
