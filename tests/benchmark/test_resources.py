import time

import numpy as np
import pytest

from sccountsdiff.benchmark.resources import measured


def test_time_and_memory_are_seen_and_errors_pass():
    with measured() as before:
        pass
    with measured() as usage:
        block = np.ones(2**24)  # 128 MB
        time.sleep(0.15)
        del block
    assert 0.15 <= usage.seconds < 5
    assert usage.peak_memory_mb > before.peak_memory_mb + 64
    with pytest.raises(ValueError, match="stop"), measured() as usage:
        raise ValueError("stop")
    assert usage.seconds > 0
