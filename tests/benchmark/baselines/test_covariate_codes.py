"""Covariates are coded as in training, and embedded as a sum."""

import numpy as np
import pandas as pd
import torch

from sccountsdiff.benchmark.baselines.covariate_codes import CovariateCoder, CovariateEmbedding, CovariateLabel


def test_covariates_are_coded_as_in_training():
    train = pd.DataFrame({"type": ["b", "a", "b"], "batch": [3, 1, 1], "age": [1.0, 2.0, 6.0], "flat": [0.1] * 3})
    coder = CovariateCoder.fit(train)
    codes, scores, unseen = coder(train)
    assert codes.tolist() == [[1, 1], [0, 0], [1, 0]] and codes.dtype == torch.long
    np.testing.assert_allclose(scores[:, 0].mean(), 0, atol=1e-6)
    np.testing.assert_allclose(scores[:, 0].std(correction=0), 1, rtol=1e-6)
    assert not unseen.any()

    test = pd.DataFrame({"type": ["new", "a"], "batch": [1, 7], "age": [3.0, 3.0], "flat": [0.1, 0.3]})
    codes, scores, unseen = coder(test)
    assert codes.tolist() == [[0, 0], [0, 0]] and unseen.tolist() == [True, True]
    np.testing.assert_allclose(scores, [[0, 0], [0, 0.2]], atol=1e-6)  # a constant is not blown up by rounding
    assert [tuple(t.shape) for t in CovariateCoder.fit(train[[]])(test[[]])] == [(2, 0), (2, 0), (2,)]


def test_embedding_is_a_sum_over_covariates_and_nothing_in_the_null_state():
    torch.manual_seed(0)
    embed = CovariateEmbedding([3, 2], 1, n_hidden=5)
    codes, scores = torch.tensor([[0, 1], [2, 1], [2, 1]]), torch.tensor([[0.0], [2.0], [2.0]])
    null = torch.tensor([False, False, True])
    out = embed(codes, scores, null)
    first, second = embed.categorical
    weight = embed.continuous.weight[:, 0]
    torch.testing.assert_close(out[0], first.weight[0] + second.weight[1])
    torch.testing.assert_close(out[1], first.weight[2] + second.weight[1] + 2 * weight)
    assert (out[2] == 0).all()
    nothing = CovariateEmbedding([], 0, n_hidden=5)(torch.zeros(2, 0).long(), torch.zeros(2, 0), null[:2])
    assert nothing.shape == (2, 5) and (nothing == 0).all()


def test_labels_tell_combinations_apart():
    codes = torch.tensor([[0, 2], [1, 0], [0, 2], [2, 1]])
    label = CovariateLabel(codes, [3, 3], n_hidden=2)
    torch.nn.init.normal_(label.vectors.weight)
    seen = label(codes, torch.zeros(4, dtype=torch.bool))
    assert len(label) == 3 and torch.equal(seen[0], seen[2]) and len(seen.unique(dim=0)) == 3
    others = torch.tensor([[i, j] for i in range(3) for j in range(3) if [i, j] not in codes.tolist()])
    assert not label(others, torch.zeros(len(others), dtype=torch.bool)).any()
    assert not label(codes, torch.ones(4, dtype=torch.bool)).any(), "a category that was not seen"
    alone = CovariateLabel(torch.zeros(5, 0, dtype=torch.long), [], n_hidden=2)
    assert len(alone) == 1 and alone(torch.zeros(2, 0, dtype=torch.long), torch.zeros(2, dtype=torch.bool)).shape == (
        2,
        2,
    )
