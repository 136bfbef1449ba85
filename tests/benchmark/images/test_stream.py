"""The order of images depends on seed and step alone."""

import numpy as np
import pytest

from sccountsdiff.benchmark.images.stream import StepBatches


def test_each_pass_shows_every_image_once_in_another_order():
    seen = np.concatenate(list(StepBatches(10, 4, 10, seed=1)))
    passes = seen.reshape(4, 10)
    assert all(sorted(one) == list(range(10)) for one in passes)
    assert len({tuple(one) for one in passes}) == 4


@pytest.mark.parametrize("first", [0, 3, 7])
def test_order_does_not_depend_on_where_it_began(first):
    assert list(StepBatches(10, 4, 8, 1, lambda: first)) == list(StepBatches(10, 4, 8, 1))[first:]


def test_processes_share_each_batch():
    parts = [list(StepBatches(10, 4, 5, 1, rank=rank, world_size=2)) for rank in range(2)]
    whole = list(StepBatches(10, 4, 5, 1))
    assert [sorted(a + b) for a, b in zip(*parts, strict=True)] == [sorted(batch) for batch in whole]
    with pytest.raises(ValueError, match="shared evenly"):
        StepBatches(10, 4, 5, 1, world_size=3)
