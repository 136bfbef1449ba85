import random

import numpy as np
import pytest
import scvi
import torch

from sccountsdiff.seeding import global_seed


def numbers():
    return random.random(), np.random.random(), torch.rand(1).item(), scvi.settings.seed


def test_the_same_numbers_for_a_seed_and_others_for_another():
    found = []
    for seed in (3, 3, 4):
        with global_seed(seed):
            found.append(numbers())
    assert found[0] == found[1] and all(a != b for a, b in zip(found[0], found[2], strict=True))
    assert found[0][3] == 3


def test_states_are_as_before_even_after_an_error():
    with global_seed(0):  # so that this test does not change the states of others
        expected = numbers()
    with global_seed(0):
        with pytest.raises(ValueError, match="stop"), global_seed(1):
            numbers()
            raise ValueError("stop")
        assert numbers() == expected
