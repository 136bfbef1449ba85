"""Distances of a shift are known."""

import numpy as np

from sccountsdiff.benchmark.simulated.scoring import joint_scores, marginal_scores


def test_scores_of_a_shift():
    x = np.random.default_rng(0).poisson(2.0, (300, 2)).astype(float)
    scores = marginal_scores(x, x + [0, 3])
    assert scores["wasserstein_1"].tolist() == [0.0, 3.0]
    np.testing.assert_allclose(scores["variance"], x.var(0))
    assert scores["mmd"][0] == 0 < scores["mmd"][1]
    assert joint_scores(x, x + 1)["joint_swd"] < joint_scores(x, x + 2)["joint_swd"]
