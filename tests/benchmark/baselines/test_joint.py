"""Methods that complete training and test cells together are shown both, and answer at the depth of the cell."""

from dataclasses import dataclass

import numpy as np
import pytest
from anndata import AnnData

from sccountsdiff.benchmark.baselines.joint import JointBaseline

TRAIN = AnnData(np.array([[2.0, 6.0], [4.0, 12.0]]))
TEST = AnnData(np.array([[9.0, 0.0], [0.0, 0.0]]))
SITES = np.array([[False, True], [True, True]])


@dataclass(eq=False)
class Profiles(JointBaseline):
    """Answers with the mean profile, and keeps what it is shown."""

    name = "profiles"

    def _profiles(self, cells, depth, seed):
        self.shown, self.depth = cells, depth
        return np.tile(self._mean, (len(cells) - self.n_train, 1))


@dataclass(eq=False)
class MaskedProfiles(Profiles):
    uses_mask = True


@pytest.mark.parametrize("kind", [Profiles, MaskedProfiles])
def test_test_cells_follow_the_training_cells_and_empty_ones_are_left_out(kind):
    method = kind(pseudo_count=0).fit(TRAIN)
    answer = method.impute(TEST, SITES)
    assert method.shown.counts.tolist() == [[2, 6], [4, 12], [9, 0]]
    # Three times the 3 expected of the first gene, so three times the 9 expected of the second.
    np.testing.assert_allclose(answer[0], [9, 27])
    np.testing.assert_allclose(answer[1], [3, 9])


def test_hidden_zeros_count_in_the_depth_of_methods_without_a_mask():
    depths = {}
    for kind in (Profiles, MaskedProfiles):
        method = kind(pseudo_count=0).fit(TRAIN)
        method.impute(TEST, SITES)
        depths[kind] = method.depth[2].item()
    assert depths[Profiles] == pytest.approx(9 / 12) and depths[MaskedProfiles] == pytest.approx(9 / 3)
