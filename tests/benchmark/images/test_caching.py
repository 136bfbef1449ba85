"""What is equal has one name, what differs has another."""

import numpy as np
import torch

from sccountsdiff.benchmark.images.caching import fingerprint
from sccountsdiff.diffusion import Cap, PerStep, Rescale


def test_equal_content_has_one_name_whatever_holds_it():
    x = torch.arange(12.0).reshape(3, 4)
    assert fingerprint(x) == fingerprint(x.clone()) == fingerprint(x.T.contiguous().T)
    assert fingerprint({"a": x}, [1, 2.0]) == fingerprint({"a": x.clone()}, [1, 2.0])


def test_every_difference_has_another_name():
    x = torch.zeros(3)
    rates = torch.full((2000,), 0.1)
    other = rates.clone()
    other[1000] = 0.2  # where printing a tensor leaves it out
    parts = [
        (x,), (x.double(),), (torch.zeros(3, 1),), (torch.tensor([0.0, 0, 1]),), (np.zeros(3, "float32"),),
        (x, 1), (x, 1.0), (x, "1"), ({"a": x},), ({"b": x},), ([x],), (Rescale(0.1),), (Rescale(0.2),), (Cap(0.1),),
        (PerStep(rates),), (PerStep(other),),
    ]  # fmt: skip
    assert len({fingerprint(*part) for part in parts}) == len(parts)
