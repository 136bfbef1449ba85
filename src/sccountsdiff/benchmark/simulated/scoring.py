"""How close samples come to the truth: all dimensions together, and one at a time."""

from __future__ import annotations

import numpy as np
import pandas as pd

from sccountsdiff.benchmark.metrics import mmd, sliced_wasserstein

N_PROJECTIONS = 100  # as in the paper
JOINT_MMD_SAMPLES, MARGINAL_MMD_SAMPLES = 2_000, 1_000  # its cost grows with the square, and there are ten marginals


def joint_scores(truth: np.ndarray, samples: np.ndarray) -> dict[str, float]:
    """Squared maximum mean discrepancy and sliced Wasserstein distance.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).poisson(2.0, (50, 3)).astype(float)
    >>> joint_scores(x, x)
    {'joint_mmd': 0.0, 'joint_swd': 0.0}
    """
    return {
        "joint_mmd": mmd(truth, samples, max_cells=JOINT_MMD_SAMPLES),
        "joint_swd": sliced_wasserstein(truth, samples, n_projections=N_PROJECTIONS),
    }


def marginal_scores(truth: np.ndarray, samples: np.ndarray) -> pd.DataFrame:
    """For each dimension: squared maximum mean discrepancy, Wasserstein-1 distance, mean, variance, share of zeros.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.arange(4.0)[:, None]
    >>> marginal_scores(x, x + 2)["wasserstein_1"].tolist()
    [2.0]
    """
    columns = range(truth.shape[1])
    return pd.DataFrame(
        {
            "dimension": columns,
            "mmd": [mmd(truth[:, [d]], samples[:, [d]], max_cells=MARGINAL_MMD_SAMPLES) for d in columns],
            "wasserstein_1": np.abs(np.sort(truth, axis=0) - np.sort(samples, axis=0)).mean(axis=0),
            "mean": samples.mean(axis=0, dtype=np.float64),
            "variance": samples.var(axis=0, dtype=np.float64),
            "zeros": (samples == 0).mean(axis=0),
        }
    )
