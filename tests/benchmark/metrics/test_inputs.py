"""What holds for all metrics of entries: which of them count, and what is refused."""

import numpy as np
import pytest

from sccountsdiff.benchmark import metrics
from sccountsdiff.benchmark.metrics import inputs


def test_only_sites_count(odd_cells):
    truth, imputed, sites = odd_cells
    elsewhere = np.where(sites, imputed, 1e6)
    for name in ("rmse", "mae", "bias", "r2", "spearman", "pearson", "poisson_loss", "nb_log_score", "energy_distance"):
        function = getattr(metrics, name)
        assert function(truth, imputed, sites) == function(truth, elsewhere, sites)


def test_blocks_of_cells_do_not_matter(odd_cells, monkeypatch):
    whole = {name: getattr(metrics, name)(*odd_cells) for name in ("rmse", "spearman", "r2")}
    monkeypatch.setattr(inputs.blocks, "__defaults__", (7,))
    for name, value in whole.items():
        assert getattr(metrics, name)(*odd_cells) == pytest.approx(value)


def test_input_is_refused_clearly(odd_cells):
    truth, imputed, sites = odd_cells
    bad = imputed.copy()
    bad[0, 0] = np.nan
    for message, arguments in [
        ("same shape", (truth, imputed[:3], sites)),
        ("imputed has NaN", (truth, bad, sites)),
        ("boolean", (truth, imputed, sites.astype(int))),
        ("boolean", (truth, imputed, sites[:3])),
        ("False everywhere", (truth, imputed, sites & False)),
        ("empty", (truth[:0], imputed[:0], sites[:0])),
    ]:
        for function in (metrics.rmse, metrics.spearman, metrics.energy_distance, metrics.poisson_loss):
            with pytest.raises(ValueError, match=message):
                function(*arguments)


@pytest.mark.parametrize(("n", "size"), [(0, 3), (1, 3), (6, 3), (7, 3)])
def test_blocks_cover_everything_once(n, size):
    found = [i for block in inputs.blocks(n, size) for i in range(n)[block]]
    assert found == list(range(n))
    assert all(block.stop - block.start <= size for block in inputs.blocks(n, size))
