"""Classifier-free guidance in log space (Section 3.4)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sccountsdiff.diffusion.prediction import Denoiser, Prediction


def check_guidance(gamma: float) -> None:
    """Refuse a strength that is negative or not a finite number."""
    if not 0 <= gamma < float("inf"):
        raise ValueError(f"`guidance` must be finite and at least 0, not {gamma}.")


def guide(denoise: Denoiser, gamma: float) -> Callable[[Tensor, Tensor, Tensor], Prediction]:
    """Mix the conditional and the unconditional prediction: ``log y = gamma log y_c + (1 - gamma) log y_u``.

    Only the passes that are needed are run: at ``gamma`` 1 and 0 only the conditional and the unconditional one; in
    between and beyond, both run as one batch of twice the size.

    Parameters
    ----------
    denoise
        Called as ``denoise(x, status, t, null)``, with ``null`` a boolean for each cell.
    gamma
        Guidance strength; 1 is the conditional model, 0 the unconditional one.

    Returns
    -------
    A function of ``(x, status, t)`` that gives the mixed prediction.

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.diffusion import Prediction, guide
    >>> def denoise(x, status, t, null):
    ...     return Prediction(torch.where(null, 1.0, 3.0)[:, None].expand_as(x))
    >>> guide(denoise, 2.0)(torch.zeros(1, 2), torch.zeros(1, 2), torch.ones(1)).log_mean.tolist()
    [[5.0, 5.0]]
    """
    check_guidance(gamma)

    def one_pass(x: Tensor, status: Tensor, t: Tensor) -> Prediction:
        null = torch.full(t.shape, gamma == 0, device=x.device)
        return denoise(x, status, t, null)

    def two_passes(x: Tensor, status: Tensor, t: Tensor) -> Prediction:
        n = len(x)
        null = torch.arange(2 * n, device=x.device) >= n
        both = denoise(torch.cat([x, x]), torch.cat([status, status]), torch.cat([t, t]), null)
        conditional, unconditional = both.map(lambda value: value[:n]), both.map(lambda value: value[n:])
        log_mean = gamma * conditional.log_mean + (1 - gamma) * unconditional.log_mean
        # Guidance moves the birth rate; the spread around it stays the conditional model's.
        return conditional.moved_to(log_mean)

    return one_pass if gamma in (0, 1) else two_passes
