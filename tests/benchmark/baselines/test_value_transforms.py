"""Values are undone, and do not depend on what is hidden."""

import numpy as np
import pandas as pd
import pytest
import torch

from sccountsdiff.benchmark.baselines.base import Cells
from sccountsdiff.benchmark.baselines.value_transforms import BinnedValues, LogValues


def as_cells(counts, observed=None):
    counts = np.asarray(counts, dtype=np.float32)
    observed = np.ones(counts.shape, dtype=bool) if observed is None else observed
    return Cells(counts, observed, pd.DataFrame(index=range(len(counts))))


@pytest.fixture(scope="module")
def counts():
    return np.random.default_rng(0).poisson(np.random.default_rng(1).gamma(0.5, 4, (30, 12))).astype(np.float32)


def test_hidden_values_do_not_leak_into_the_input(counts):
    """Not even through the depth of the cell or the edges of its bins."""
    x = torch.as_tensor(counts)
    observed = torch.rand(x.shape, generator=torch.Generator().manual_seed(0)) < 0.5
    other = torch.where(observed, x, 100.0)
    for values in (LogValues(as_cells(counts)), BinnedValues(as_cells(counts), 51)):
        torch.testing.assert_close(values(x, observed)[observed], values(other, observed)[observed])
        predicted = torch.rand(x.shape)
        torch.testing.assert_close(values.decode(predicted, x, observed), values.decode(predicted, other, observed))


def test_log_values_are_undone_at_the_depth_of_the_observed(counts):
    x, observed = torch.as_tensor(counts), torch.ones(counts.shape, dtype=torch.bool)
    values = LogValues(as_cells(counts))
    torch.testing.assert_close(values.decode(values(x, observed), x, observed), x, rtol=1e-4, atol=1e-4)
    observed[:, 6:] = False
    deeper = torch.where(observed, 3 * x, x)
    ratio = values.depth(deeper, observed) / values.depth(x, observed)
    assert (ratio > 1).float().mean() > 0.9
    assert (values.decode(torch.full_like(x, 1e3), x, observed) < 1e6).all(), "a wild prediction explodes"


def test_bins_are_those_of_the_original(counts):
    """Edges are quantiles of the non-zero counts; ties lie in the middle of where the original may put them."""
    x, n_bins = torch.as_tensor(counts), 11
    values = BinnedValues(as_cells(counts), n_bins)
    observed = torch.ones(counts.shape, dtype=torch.bool)
    bins = values(x, observed).numpy()
    assert (bins[counts == 0] == 0).all()
    for row, ours in zip(counts, bins, strict=True):
        positive = row[row > 0]
        edges = np.quantile(positive, np.linspace(0, 1, n_bins - 1)).astype(np.float32)
        last, first = np.digitize(positive, edges), np.digitize(positive, edges, right=True) + 1
        np.testing.assert_allclose(ours[row > 0], (np.minimum(first, last) + last) / 2)
        np.testing.assert_allclose(values.edges(torch.as_tensor(row)[None], observed[:1])[0, 1:], edges, rtol=1e-5)
    back = values.decode(torch.as_tensor(bins), x, observed).numpy()
    assert (np.diff(np.take_along_axis(back, counts.argsort(axis=1), axis=1), axis=1) >= -1e-4).all()
    np.testing.assert_allclose(back.max(axis=1), counts.max(axis=1), rtol=1e-5)


def test_scaled_values_are_shifted_scaled_and_bounded_gene_by_gene(counts):
    scaling = lambda logs, observed: (logs.mean(dim=0), logs.std(dim=0), logs.amax(dim=0))
    x, everything = torch.as_tensor(counts), torch.ones(counts.shape, dtype=torch.bool)
    plain, scaled = LogValues(as_cells(counts)), LogValues(as_cells(counts), scaling)
    logs = plain(x, everything)
    torch.testing.assert_close(scaled(x, everything), (logs - logs.mean(dim=0)) / logs.std(dim=0))
    torch.testing.assert_close(scaled.decode(scaled(x, everything), x, everything), x, rtol=1e-4, atol=1e-4)
    most = scaled.decode(torch.full_like(x, 1e3), x, everything) / scaled.depth(x, everything)
    torch.testing.assert_close(most, logs.amax(dim=0).expm1().expand_as(x))
