"""Products of large matrices on a CPU.

On AMD's processors, MKL, which torch takes for them, leaves the widest half of AVX-512 alone. oneDNN, which is in torch as well,
does not, and takes half the time there. Everywhere else torch's own product is taken.
"""

from __future__ import annotations

import platform
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from sccountsdiff.diffusion.host import host_sees


def _with_onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    # As torch's compiler calls it; not public, so that it is tried before it is used.
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def _onednn_is_faster() -> bool:
    """Whether this is a processor where oneDNN is ahead, and this torch has the product."""
    if torch.backends.cpu.get_cpu_capability() != "AVX512" or "AuthenticAMD" not in _processor():
        return False
    try:
        return _with_onednn(torch.ones(1, 2), torch.tensor([[1.0, 2.0]]), torch.tensor([4.0])).tolist() == [[7.0]]
    except (AttributeError, RuntimeError, TypeError):
        return False


def _processor() -> str:
    """What the system says of the processor, its maker included."""
    described = Path("/proc/cpuinfo")
    return described.read_text() if described.exists() else platform.processor()


_USES_ONEDNN = _onednn_is_faster()


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x @ weight.T + bias``, as :func:`torch.nn.functional.linear`, for large matrices.

    It can be differentiated once.

    Parameters
    ----------
    x
        Rows, ``(n, features)``.
    weight
        ``(outputs, features)``.
    bias
        ``(outputs,)``.

    Returns
    -------
    ``(n, outputs)``.

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.diffusion.products import linear
    >>> linear(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]]), torch.tensor([5.0])).tolist()
    [[16.0]]
    """
    if not _is_for_onednn(x, weight):
        return F.linear(x, weight, bias)
    return _Linear.apply(x, weight, bias) if torch.is_grad_enabled() else _multiply(x, weight, bias)


def _is_for_onednn(x: Tensor, weight: Tensor) -> bool:
    """Whether these are what it was found to be faster with: single precision, in the memory of the host."""
    is_single = x.dtype == weight.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    is_allowed = _USES_ONEDNN and bool(torch.backends.mkldnn.enabled)
    return is_allowed and host_sees(x) and is_single and x.ndim == 2 and x.numel() > 0


def _multiply(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    # With weights that have gaps between rows and between columns it takes a hundred times as long.
    is_dense = weight.is_contiguous() or weight.T.is_contiguous()
    return _with_onednn(x, weight if is_dense else weight.contiguous(), bias)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _multiply(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        gradient = gradient.contiguous()
        return (
            _multiply(gradient, weight.T) if of_x else None,
            _multiply(gradient.T, x.T) if of_weight else None,
            gradient.sum(0) if of_bias else None,
        )
