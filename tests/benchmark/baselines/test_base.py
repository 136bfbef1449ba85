"""What the base class promises for every method: checks, no peeking, observed entries untouched."""

from dataclasses import dataclass, field, fields
from typing import ClassVar, get_type_hints

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from scipy import sparse

from sccountsdiff.benchmark.baselines import BASELINES, Baseline, get_baseline, list_methods, register_baseline
from sccountsdiff.benchmark.baselines.base import sampling

SCVI = {"n_hidden": 8, "n_latent": 2, "max_epochs": 2, "n_posterior": 2}

MLP = {"max_epochs": 1, "model_kwargs": {"n_hidden": 8, "n_layers": 1}}

TRANSFORMER = {"max_epochs": 1, "n_steps": 2, "model_kwargs": {"n_hidden": 8, "n_layers": 1, "n_heads": 2}}

SMALL = {
    "scvi": SCVI,
    "scvi_refined": SCVI | {"n_rounds": 2},
    "scvi_draw": SCVI | {"n_rounds": 2},
    "knn_mean": {"n_neighbors": 5},
    "magic": {"n_neighbors": 5},
    "alra": {"rank": 2},
    "knn_smoothing": {"n_neighbors": 8},
    "sklearn_knn": {"n_neighbors": 5},
    "sklearn_iterative": {"max_iter": 2},
    "gaussian_regression": {"n_factors": 2, "n_rounds": 3},
    "gaussian_regression_draw": {"n_factors": 2, "n_rounds": 3},
    "gain": {"n_hidden": 8, "max_epochs": 2},
    "dca": {"n_hidden": (8, 4, 8), "max_epochs": 2},
    "hivae_poisson": {"n_hidden": 8, "n_latent": 2, "max_epochs": 2},
    "hivae_gaussian": {"n_hidden": 8, "n_latent": 2, "max_epochs": 2},
    "scidpms": {"n_hidden": 8, "n_layers": 1, "n_heads": 2, "n_levels": 10, "n_steps": 3, "max_epochs": 1},
    "scgpt": {"n_hidden": 8, "n_layers": 1, "max_epochs": 2},
    "xtrimogene": {"n_hidden": 8, "n_decoder_hidden": 8, "n_layers": 1, "n_bins": 10, "max_epochs": 2},
    "remdm": {"n_hidden": 8, "n_layers": 1, "n_steps": 3, "max_epochs": 1},
    "countsdiff": MLP | {"n_steps": 2},
    "countsdiff_mean": MLP,
    "countsdiff_log_mean": MLP,
    "countsdiff_paper": TRANSFORMER,
    "blackout": TRANSFORMER,
}

OWN = ["zero", "gene_mean", "conditional_mean", "conditional_mean_scaled", "gene_mean_scaled", *SMALL]


@pytest.fixture(scope="module")
def cells():
    rng = np.random.default_rng(0)
    kind = rng.integers(2, size=80)
    mean = np.array([[5, 1, 2, 0.2, 9], [1, 4, 2, 0.2, 3]])[kind] * rng.gamma(5, 0.2, (80, 1))
    obs = pd.DataFrame({"type": np.array(["a", "b"])[kind], "age": rng.random(80)}, index=[f"c{i}" for i in range(80)])
    return AnnData(rng.poisson(mean).astype(np.float32), obs=obs)


@pytest.fixture(scope="module")
def sites(cells):
    return np.random.default_rng(1).random((20, cells.n_vars)) < 0.4


def fitted(name, cells, **kwargs):
    return get_baseline(name)(**SMALL.get(name, {})).fit(cells[:60], covariates=["type"], **kwargs)


@pytest.mark.parametrize("name", OWN)
def test_no_peeking_and_nothing_observed_changes(name, cells, sites):
    method, test = fitted(name, cells), cells[60:].copy()
    answer = method.impute(test, sites)
    assert answer.shape == test.shape
    np.testing.assert_array_equal(answer[~sites].view(np.uint32), test.X[~sites].view(np.uint32))

    disturbed = test.copy()
    disturbed.X[sites] = np.random.default_rng(2).poisson(1000, sites.sum())
    np.testing.assert_array_equal(method.impute(disturbed, sites), answer)
    disturbed.X[sites] = np.nan
    np.testing.assert_array_equal(method.impute(disturbed, sites), answer)
    assert np.isfinite(test.X).all(), "the cells that were given were written to"


@pytest.mark.parametrize("name", OWN)
def test_the_seed_decides(name, cells, sites):
    test = cells[60:]
    first, again = (fitted(name, cells, seed=3).impute(test, sites, seed=4) for _ in range(2))
    np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize("name", OWN)
def test_sparse_and_dense_layers_and_backing_types_agree(name, cells, sites):
    other = AnnData(np.zeros(cells.shape), obs=cells.obs, layers={"counts": sparse.csr_matrix(cells.X)})
    answer = fitted(name, cells).impute(cells[60:], sites)
    from_layer = fitted(name, other, layer="counts").impute(other[60:], sparse.csr_matrix(sites))
    np.testing.assert_allclose(from_layer, answer, rtol=1e-6)


@pytest.mark.parametrize("name", OWN)
def test_a_cell_with_nothing_observed_and_empty_cells(name, cells):
    test = cells[60:64].copy()
    test.X[1] = 0
    sites = np.zeros(test.shape, dtype=bool)
    sites[0], sites[1, 0] = True, True
    answer = fitted(name, cells).impute(test, sites)
    assert np.isfinite(answer).all()
    if name != "zero":
        assert answer[0].sum() > 0


@dataclass(eq=False)
class Dummy(Baseline):
    value: float = 1.0
    name: ClassVar[str] = "dummy"
    draws: ClassVar[bool] = True

    def _fit(self, cells, seed):
        self.shown = list(cells.covariates)
        self.trained_on = cells

    def _impute(self, cells, sites, n_samples, seed):
        counts = cells.counts
        self.seen, self.observed = counts.copy(), cells.observed.copy()
        counts[:] = 77  # a careless method writes to its input
        return np.full((n_samples, *counts.shape) if n_samples > 1 else counts.shape, self.value)


def test_what_a_method_is_shown(cells, sites):
    method = Dummy().fit(cells[:60], covariates="type")
    assert method.shown == [], "a method that uses no covariates is not shown them"
    answer = method.impute(cells[60:], sites, n_samples=3)
    assert answer.shape == (3, *sites.shape)
    assert (method.seen[sites] == 0).all()
    np.testing.assert_array_equal(method.observed, ~sites)
    assert (answer[:, sites] == 1).all()
    np.testing.assert_array_equal(answer[0][~sites], cells[60:].X[~sites])


def test_what_is_missing_is_not_observed(cells, sites):
    train, test = cells[:60].copy(), cells[60:]
    rng = np.random.default_rng(3)
    observed, observed_test = rng.random(train.shape) < 0.9, rng.random(test.shape) < 0.7
    observed[:, 1] = False  # a gene and a cell with nothing left are taken as they are
    observed[2] = False
    expected = observed.copy()
    expected[:, 1] = expected[2] = True

    class Masked(Dummy):
        uses_mask = True

    method = Masked().fit(train, observed=observed)
    np.testing.assert_array_equal(method.trained_on.observed, expected)
    np.testing.assert_array_equal(method.trained_on.counts, np.where(expected, train.X, 0))
    answer = method.impute(test, sites, observed=observed_test)
    np.testing.assert_array_equal(method.observed, observed_test & ~sites)
    np.testing.assert_array_equal(method.seen, np.where(observed_test & ~sites, test.X, 0))
    np.testing.assert_array_equal(answer[~sites], test.X[~sites])
    assert Dummy().fit(train, observed=observed).trained_on.observed.all()
    for argument in (observed[:3], observed.astype(float)):
        with pytest.raises(ValueError, match="observed must"):
            Dummy().fit(train, observed=argument)


@pytest.mark.parametrize("name", OWN)
def test_learns_from_incomplete_cells(name, cells, sites):
    """What is not observed has no influence on a method that says so, and all methods work with gaps."""
    method = get_baseline(name)(**SMALL.get(name, {}))
    observed = np.random.default_rng(4).random(cells.shape) < 0.7
    options = {"covariates": ["type"], "observed": observed[:60]}
    answer = method.fit(cells[:60], **options).impute(cells[60:], sites, observed=observed[60:])
    np.testing.assert_array_equal(answer[~sites], cells[60:].X[~sites])
    if method.uses_mask:
        other = cells.copy()
        other.X[~observed] = 999
        again = get_baseline(name)(**SMALL.get(name, {})).fit(other[:60], **options)
        np.testing.assert_array_equal(again.impute(other[60:], sites, observed=observed[60:])[sites], answer[sites])


def test_input_is_refused_clearly(cells, sites):
    train, test = cells[:60], cells[60:]
    with_nan = train.copy()
    with_nan.X[0, 0] = np.nan
    negative = train.copy()
    negative.X[0, 0] = -1
    unlabelled = train.copy()
    unlabelled.obs.loc["c0", "type"] = None
    method = Dummy().fit(train)
    for error, message, call in [
        (ValueError, "1 NaN", lambda: Dummy().fit(with_nan)),
        (ValueError, "negative", lambda: Dummy().fit(negative)),
        (ValueError, "empty", lambda: Dummy().fit(train[:0])),
        (ValueError, "empty", lambda: Dummy().fit(train[:, :0])),
        (KeyError, "no layer 'raw'", lambda: Dummy().fit(train, layer="raw")),
        (KeyError, "donor", lambda: Dummy().fit(train, covariates=["donor"])),
        (ValueError, "missing values", lambda: get_baseline("conditional_mean")().fit(unlabelled, covariates="type")),
        (ValueError, "not been fitted", lambda: Dummy().impute(test, sites)),
        (ValueError, "genes of test", lambda: method.impute(test[:, ::-1], sites)),
        (ValueError, "genes of test", lambda: method.impute(test[:, :3], sites[:, :3])),
        (ValueError, "empty", lambda: method.impute(test[:0], sites[:0])),
        (ValueError, "shape", lambda: method.impute(test, sites[:3])),
        (ValueError, "boolean", lambda: method.impute(test, sites.astype(float))),
        (ValueError, "n_samples", lambda: method.impute(test, sites, n_samples=0)),
        (ValueError, "one answer", lambda: get_baseline("zero")().fit(train).impute(test, sites, n_samples=2)),
        (ValueError, "NaN", lambda: method.impute(AnnData(np.full(test.shape, np.nan), var=test.var), sites)),
        (ValueError, "not finite", lambda: Dummy(np.nan).fit(train).impute(test, sites)),
        (ValueError, "negative", lambda: Dummy(-1.0).fit(train).impute(test, sites)),
    ]:
        with pytest.raises(error, match=message):
            call()


def test_wrong_shapes_of_answers_are_caught(cells, sites):
    class Flat(Dummy):
        def _impute(self, cells, sites, n_samples, seed):
            return cells.counts[0]

    with pytest.raises(ValueError, match="expected"):
        Flat().fit(cells).impute(cells[60:], sites)


def test_registration():
    table = list_methods()
    assert set(OWN) <= set(table.index)
    assert set(table["group"]) <= {"naive", "specialised", "generative"}
    assert table.loc["scvi", "draws"] and not table.loc["zero", "draws"]
    assert table["summary"].str.len().min() > 0
    with pytest.raises(ValueError, match="already"):
        register_baseline(type("Other", (Dummy,), {"name": "zero"}))
    with pytest.raises(KeyError, match="did you mean 'gene_mean'"):
        get_baseline("gene_means")
    assert "dummy" not in BASELINES


@pytest.mark.parametrize("name", OWN)
def test_annotations_of_settings_can_be_read(name):
    kind = get_baseline(name)
    assert {setting.name for setting in fields(kind)} <= set(get_type_hints(kind))


@pytest.mark.parametrize("prepare", [lambda kind: kind, dataclass(eq=False)])
def test_registration_with_a_name_declares_and_makes_a_dataclass(prepare, monkeypatch):
    monkeypatch.setattr(BASELINES, "_entries", {})

    @register_baseline("parent", group="generative", draws=True, uses_mask=True)
    @prepare
    class Parent(Dummy):
        n_steps: int = sampling(3)
        kwargs: dict = field(default_factory=dict)

    @register_baseline("child", draws=False)
    class Child(Parent):
        n_steps: int = sampling(1)

    assert BASELINES.names() == ["parent", "child"] and (Parent.name, Child.name) == ("parent", "child")
    assert Parent.draws and not Child.draws and not Dummy.uses_mask
    assert Child.uses_mask and Child.group == "generative" and not Child.denoises
    assert (Child(value=2.0).n_steps, Child().kwargs, Parent().n_steps) == (1, {}, 3)
    assert Child(kwargs={"a": 1}) != Child(kwargs={"a": 1})
    assert "n_steps" not in Child().training_key
    with pytest.raises(TypeError, match="did you mean 'uses_mask'"):
        register_baseline("other", use_mask=True)


SAMPLING = {
    "scvi": {"n_posterior": 4, "n_rounds": 3, "pseudo_count": 1.0},
    "countsdiff": {
        "n_steps": 3, "spacing": "even", "known": "noised", "guidance": 2.0, "attrition": 0.1, "rounding": "poisson", "final": "mean",
        "jump_length": 2, "n_resamples": 2, "batch_size": 7,
    },
    "remdm": {"n_steps": 5, "remasking": "conf", "eta": 0.5, "guidance": 2.0, "known": "noised", "n_resamples": 2},
    "scidpms": {"n_steps": 5, "eta": 1.0, "n_imputations": 3},
}  # fmt: skip


@pytest.mark.parametrize("name", SAMPLING)
def test_methods_that_differ_in_imputation_only_share_a_fit(name, cells, sites):
    kind, small, other = get_baseline(name), SMALL[name], SMALL[name] | SAMPLING[name]
    assert {setting.name for setting in fields(kind) if "sampling" in setting.metadata} == set(SAMPLING[name])
    method = fitted(name, cells)
    shared = kind(**other).take_over(method).impute(cells[60:], sites)
    alone = kind(**other).fit(cells[:60], covariates=["type"]).impute(cells[60:], sites)
    np.testing.assert_array_equal(shared, alone)
    assert not np.array_equal(shared, method.impute(cells[60:], sites))
    with pytest.raises(ValueError, match="other settings"):
        kind(**small | {"max_epochs": 3}).take_over(method)


def test_what_methods_share_a_fit():
    scvi, refined, remdm = (get_baseline(name) for name in ("scvi", "scvi_refined", "remdm"))
    assert scvi().training_key == refined().training_key != scvi(n_latent=3).training_key
    assert get_baseline("zero")().training_key is None

    class OtherNetwork(remdm):
        def _network(self, cells):
            raise NotImplementedError

    assert remdm().training_key != OtherNetwork().training_key
