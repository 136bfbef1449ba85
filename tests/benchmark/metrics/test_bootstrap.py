import numpy as np
import pytest

from sccountsdiff.benchmark import metrics


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    truth = rng.poisson(4, (300, 20))
    sites = rng.random(truth.shape) < 0.3
    return {"truth": truth, "imputed": truth + rng.normal(size=truth.shape), "sites": sites}


def test_agrees_with_the_standard_error_of_a_mean(data):
    errors = np.array([(p - t)[s].mean() for t, p, s in zip(*data.values(), strict=True) if s.any()])
    expected = errors.std(ddof=1) / np.sqrt(len(errors))
    found = metrics.bootstrap_se("bias", n_resamples=400, **data)
    assert found == pytest.approx(expected, rel=4 / np.sqrt(2 * 400) + 0.05)
    quarter = metrics.bootstrap_se("bias", n_resamples=400, n_cells=75, **data)
    assert quarter == pytest.approx(2 * found, rel=0.3)


def test_name_metric_and_function_are_the_same(data):
    values = [metrics.bootstrap_se(m, **data) for m in ("rmse", metrics.get_metric("rmse"), metrics.rmse)]
    assert values[0] == values[1] == values[2] > 0
    assert metrics.bootstrap_se("rmse", seed=1, **data) != values[0]


def test_draws_stay_with_their_sites(data):
    """Draws that equal the truth keep a score of 0 in every resample."""
    truth, sites = data["truth"], data["sites"]
    draws = np.repeat(truth[sites][None], 3, axis=0)
    assert metrics.bootstrap_se("crps", truth=truth, draws=draws, sites=sites) == pytest.approx(0, abs=1e-12)

    seen = []
    metrics.bootstrap_se(
        lambda truth, draws, sites: seen.append((draws == truth[sites]).all()) or 0.0,
        truth=truth,
        draws=draws,
        sites=sites,
    )
    assert all(seen) and len(seen) == 10


def test_arguments(data):
    with pytest.raises(ValueError, match="n_resamples"):
        metrics.bootstrap_se("rmse", n_resamples=1, **data)
    with pytest.raises(ValueError, match="one row per cell"):
        metrics.bootstrap_se("rmse", **data | {"truth": data["truth"][:5]})
    with pytest.raises(ValueError, match="by name"):
        metrics.bootstrap_se("rmse")
    with pytest.raises(ValueError, match="needs \\['sites'\\]"):
        metrics.bootstrap_se("rmse", truth=data["truth"], imputed=data["imputed"])
    with pytest.raises(ValueError, match="without the sites"):
        metrics.bootstrap_se("crps", truth=data["truth"], draws=np.zeros((2, 5)))


def test_a_metric_that_takes_all_resamples_at_once_has_the_same_standard_error(data):
    """Up to the width of the kernels, which is then that of all cells."""
    at_once, one_by_one = (metrics.bootstrap_se(m, n_resamples=40, **cells) for m, cells in (
        ("mmd", data), (metrics.mmd, {name: data[name] for name in ("truth", "imputed")}),
    ))  # fmt: skip
    assert at_once == pytest.approx(one_by_one, rel=0.1)
