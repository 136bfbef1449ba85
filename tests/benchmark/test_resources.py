import time

import numpy as np
import pytest

from sccountsdiff.benchmark.resources import PEAKS, UTILISATION, hours_by_device, measured


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


def test_hours_are_operations_by_what_a_device_reaches():
    plain, mixed = (hours_by_device(3.6e18, is_mixed=is_mixed) for is_mixed in (False, True))
    assert list(plain) == list(PEAKS)
    assert plain["V100"] == pytest.approx(1e3 / (15.7 * UTILISATION))
    assert mixed["V100"] == pytest.approx(1e3 / (125 * UTILISATION))
