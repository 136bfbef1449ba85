"""Where values are: of those in the memory of the host a short cut can be seen, of others it would have to be waited for."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def host_sees(values: Tensor) -> bool:
    """Whether the host can look at values, such as whether any is missing, without waiting for a device.

    Short cuts that depend on values are taken only then, and give the same result, or draws of the same law. While a network is compiled there are no
    values to look at.

    Parameters
    ----------
    values
        Any tensor.

    Returns
    -------
    True on a CPU, unless a network is being compiled.

    Examples
    --------
    >>> import torch
    >>> host_sees(torch.zeros(1, device="cpu"))
    True
    """
    return values.device.type == "cpu" and not torch.compiler.is_compiling()


def none_of(mask: Tensor) -> bool:
    """Whether the host sees that a boolean mask is False everywhere; of a mask on a device it sees nothing.

    Examples
    --------
    >>> import torch
    >>> none_of(torch.tensor([False, False])), none_of(torch.tensor([False, True]))
    (True, False)
    """
    return host_sees(mask) and not mask.numpy().any()


def positions(values: Tensor) -> Tensor:
    """Where a tensor is not 0, or a boolean mask True, as positions in the flat tensor; a device is waited for, to know how many.

    Examples
    --------
    >>> import torch
    >>> positions(torch.tensor([[False, True], [False, True]])).tolist(), positions(torch.tensor([0.0, 3.0])).tolist()
    ([1, 3], [1])
    """
    if host_sees(values):
        seen = values.numpy()  # which finds and compares in a fraction of torch's time
        return torch.from_numpy(np.flatnonzero(seen if seen.dtype == bool else seen != 0))
    return values.flatten().nonzero()[:, 0]


def positions_of(value: float, values: Tensor) -> Tensor:
    """Where a tensor has that value, as positions in the flat tensor; a device is waited for, as in :func:`positions`.

    Examples
    --------
    >>> import torch
    >>> positions_of(2.0, torch.tensor([[2.0, 1.0], [0.0, 2.0]])).tolist()
    [0, 3]
    """
    if host_sees(values):
        return torch.from_numpy(np.flatnonzero(values.numpy() == value))  # compares in a fifth of torch's time
    return positions(values == value)


def only_where(mask: Tensor, values: Tensor) -> Tensor:
    """The values where a boolean mask is True, and 0 elsewhere, whatever stands there, even if it is not a number.

    Examples
    --------
    >>> import torch
    >>> only_where(torch.tensor([True, False]), torch.tensor([3.0, torch.nan])).tolist()
    [3.0, 0.0]
    """
    if not host_sees(values):
        return torch.where(mask, values, 0)
    # To choose one by one, by a mask that cannot be foreseen, takes several times as long as a product.
    if bool(values.sum().isfinite()):
        return values * mask.view(torch.uint8).to(values.dtype)
    at, flat = positions(mask), values.reshape(-1)
    return torch.zeros_like(flat).scatter_(0, at, flat.index_select(0, at)).view_as(values)


def multiply_into(out: Tensor, values: Tensor, factors: Tensor) -> None:
    """Put products into a part of a tensor.

    Examples
    --------
    >>> import torch
    >>> table = torch.zeros(2, 2)
    >>> multiply_into(table[:, 1], torch.ones(2), torch.tensor([3.0, 4.0]))
    >>> table.tolist()
    [[0.0, 3.0], [0.0, 4.0]]
    """
    if torch.compiler.is_compiling():  # which takes no part of a tensor as an output
        out.copy_(values * factors)
    else:
        torch.mul(values, factors, out=out)


def one_row_if_alike(values: Tensor) -> Tensor:
    """The first row of a tensor if the host sees that all are the same, else the tensor.

    Examples
    --------
    >>> import torch
    >>> len(one_row_if_alike(torch.ones(3, 2))), len(one_row_if_alike(torch.eye(3)))
    (1, 3)
    """
    if len(values) < 2 or not host_sees(values):
        return values
    seen = values.numpy()
    is_alike = np.array_equal(seen[0], seen[-1]) and bool((seen == seen[0]).all())  # most that differ do so in the last
    return values[:1] if is_alike else values


def rows_of(places: Tensor, shape: tuple[int, int]) -> Tensor:
    """Rows in which rising positions in a flat tensor of that shape are, on the host: without a division for each.

    Examples
    --------
    >>> import torch
    >>> rows_of(torch.tensor([1, 3]), (2, 2)).tolist()
    [0, 1]
    """
    n_rows, n_columns = shape
    starts = np.searchsorted(places.numpy(), np.arange(n_rows + 1) * n_columns)
    return torch.from_numpy(np.repeat(np.arange(n_rows), np.diff(starts)))
