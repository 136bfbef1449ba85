"""Global random state, used by libraries that offer no generator, set for a while and put back."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np


def seed_process(*keys: int) -> None:
    """Seed torch by several numbers, such as a seed and the rank of a process, which then has random numbers of its own.

    Examples
    --------
    >>> import torch
    >>> seed_process(0, 1)
    >>> first = torch.rand(1)
    >>> seed_process(0, 2)
    >>> bool(first == torch.rand(1))
    False
    """
    import torch

    torch.manual_seed(int(np.random.SeedSequence(keys).generate_state(1, np.uint64)[0]))


@contextmanager
def global_seed(seed: int) -> Iterator[None]:
    """Seed Python, numpy, torch and scvi-tools inside a ``with`` block; their states are as before after it.

    Examples
    --------
    >>> import torch
    >>> with global_seed(3):
    ...     first = torch.rand(1)
    >>> with global_seed(3):
    ...     second = torch.rand(1)
    >>> bool(first == second)
    True
    """
    import scvi
    import torch

    from sccountsdiff.compat import set_scvi_seed

    python_state, numpy_state, scvi_seed = random.getstate(), np.random.get_state(), scvi.settings.seed
    with torch.random.fork_rng():
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        set_scvi_seed(seed)
        try:
            yield
        finally:
            set_scvi_seed(scvi_seed)
            random.setstate(python_state)
            np.random.set_state(numpy_state)
