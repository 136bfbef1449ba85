"""The Inception-v3 of the Frechet inception distance, for the published weights of its PyTorch port."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

WEIGHTS = "pt_inception-2015-12-05-6726825d.pth"
WEIGHTS_URL = f"https://github.com/mseitzer/pytorch-fid/releases/download/fid_weights/{WEIGHTS}"


class _Conv(nn.Module):
    def __init__(self, n_in: int, n_out: int, kernel: int | tuple[int, int], stride: int = 1, pad: bool = True):
        super().__init__()
        height, width = (kernel, kernel) if isinstance(kernel, int) else kernel
        padding = (height // 2, width // 2) if pad else 0
        self.conv = nn.Conv2d(n_in, n_out, (height, width), stride, padding, bias=False)
        self.bn = nn.BatchNorm2d(n_out, eps=0.001)
        self.n_out = n_out

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.bn(self.conv(x)), inplace=True)


class _Mixed(nn.Module):
    """Parallel paths of convolutions and a pooling path, side by side in the output.

    Parameters
    ----------
    n_in
        Channels that come in.
    paths
        For each path its name and convolutions as (channels, kernel). The convolutions are called ``name_1``,
        ``name_2`` ... as in the published weights, a single one just ``name``.
    pool
        ``"average"``, ``"max"``, or ``"halve"``: every path ends with stride 2 and pooling has no convolution.
    n_pool
        Channels of the convolution after pooling.
    forked
        Paths that end in two convolutions side by side (1 x 3 and 3 x 1).
    """

    def __init__(self, n_in: int, paths: dict[str, Sequence], pool: str, n_pool: int = 0, forked: Sequence[str] = ()):
        super().__init__()
        self.pool, self.paths, self.n_out = pool, [], 0
        for name, layers in paths.items():
            n, stages = n_in, []
            for number, (n_channels, kernel) in enumerate(layers, 1):
                last = pool == "halve" and number == len(layers)
                stage = name if len(layers) == 1 and name not in forked else f"{name}_{number}"
                self.add_module(stage, _Conv(n, n_channels, kernel, stride=2 if last else 1, pad=not last))
                stages.append((stage,))
                n = n_channels
            if name in forked:
                n_channels, number = 384, len(layers) + 1
                fork = (f"{name}_{number}a", f"{name}_{number}b")
                self.add_module(fork[0], _Conv(n, n_channels, (1, 3)))
                self.add_module(fork[1], _Conv(n, n_channels, (3, 1)))
                stages.append(fork)
                n = 2 * n_channels
            self.paths.append(stages)
            self.n_out += n
        if n_pool:
            self.branch_pool = _Conv(n_in, n_pool, 1)
        self.n_out += n_pool or n_in

    def forward(self, x: Tensor) -> Tensor:
        outputs = []
        for stages in self.paths:
            parts = [x]
            for stage in stages:
                parts = [self.get_submodule(name)(torch.cat(parts, 1)) for name in stage]
            outputs += parts
        if self.pool == "halve":
            return torch.cat([*outputs, F.max_pool2d(x, 3, 2)], 1)
        if self.pool == "max":
            pooled = F.max_pool2d(x, 3, 1, 1)
        else:  # as in TensorFlow: what lies outside the image does not count
            pooled = F.avg_pool2d(x, 3, 1, 1, count_include_pad=False)
        return torch.cat([*outputs, self.branch_pool(pooled)], 1)


def _five(n_in: int, n_pool: int) -> _Mixed:
    paths = {"branch1x1": [(64, 1)], "branch5x5": [(48, 1), (64, 5)], "branch3x3dbl": [(64, 1), (96, 3), (96, 3)]}
    return _Mixed(n_in, paths, "average", n_pool)


def _six(n: int) -> _Mixed:
    row, column = (1, 7), (7, 1)
    paths = {
        "branch1x1": [(192, 1)],
        "branch7x7": [(n, 1), (n, row), (192, column)],
        "branch7x7dbl": [(n, 1), (n, column), (n, row), (n, column), (192, row)],
    }
    return _Mixed(768, paths, "average", 192)


def _seven(n_in: int, pool: str) -> _Mixed:
    paths = {"branch1x1": [(320, 1)], "branch3x3": [(384, 1)], "branch3x3dbl": [(448, 1), (384, 3)]}
    return _Mixed(n_in, paths, pool, 192, forked=("branch3x3", "branch3x3dbl"))


class Inception(nn.Module):
    """Inception-v3 as the Frechet inception distance uses it: 2,048 pooled features, 1,008 classes.

    It differs from the common one in how it pools at the edges and in its last block. Use :func:`load_inception` for the
    published weights.

    Examples
    --------
    >>> import torch
    >>> network = Inception().eval()
    >>> with torch.inference_mode():
    ...     network(torch.zeros(1, 3, 32, 32, dtype=torch.uint8)).shape
    torch.Size([1, 2048])
    """

    num_features = 2048

    def __init__(self):
        super().__init__()
        self.Conv2d_1a_3x3 = _Conv(3, 32, 3, stride=2, pad=False)
        self.Conv2d_2a_3x3 = _Conv(32, 32, 3, pad=False)
        self.Conv2d_2b_3x3 = _Conv(32, 64, 3)
        self.Conv2d_3b_1x1 = _Conv(64, 80, 1)
        self.Conv2d_4a_3x3 = _Conv(80, 192, 3, pad=False)
        self.Mixed_5b, self.Mixed_5c, self.Mixed_5d = _five(192, 32), _five(256, 64), _five(288, 64)
        self.Mixed_6a = _Mixed(288, {"branch3x3": [(384, 3)], "branch3x3dbl": [(64, 1), (96, 3), (96, 3)]}, "halve")
        self.Mixed_6b, self.Mixed_6c, self.Mixed_6d, self.Mixed_6e = _six(128), _six(160), _six(160), _six(192)
        paths = {
            "branch3x3": [(192, 1), (320, 3)],
            "branch7x7x3": [(192, 1), (192, (1, 7)), (192, (7, 1)), (192, 3)],
        }
        self.Mixed_7a = _Mixed(768, paths, "halve")
        self.Mixed_7b, self.Mixed_7c = _seven(1280, "average"), _seven(2048, "max")
        self.fc = nn.Linear(2048, 1008)

    def forward(self, images: Tensor) -> Tensor:
        """Features of images with pixels 0 to 255, ``(images, 3, height, width)``; grey ones count as three channels."""
        x = images.expand(-1, 3, -1, -1).float() / 255
        x = 2 * F.interpolate(x, (299, 299), mode="bilinear", align_corners=False) - 1
        x = self.Conv2d_2b_3x3(self.Conv2d_2a_3x3(self.Conv2d_1a_3x3(x)))
        x = self.Conv2d_4a_3x3(self.Conv2d_3b_1x1(F.max_pool2d(x, 3, 2)))
        x = self.Mixed_5d(self.Mixed_5c(self.Mixed_5b(F.max_pool2d(x, 3, 2))))
        x = self.Mixed_6e(self.Mixed_6d(self.Mixed_6c(self.Mixed_6b(self.Mixed_6a(x)))))
        x = self.Mixed_7c(self.Mixed_7b(self.Mixed_7a(x)))
        return x.mean((2, 3))

    def logits(self, features: Tensor) -> Tensor:
        """Class scores without their bias, the convention of published inception scores."""
        return features @ self.fc.weight.T


def load_inception(weights_path: str | Path | None = None, *, download: bool = False) -> Inception:
    """Inception with published weights.

    Parameters
    ----------
    weights_path
        File with the layout of ``pt_inception-2015-12-05-6726825d.pth``. By default that file in torch hub's cache.
    download
        Fetch it into the cache if it is not there (95 MB).

    Returns
    -------
    The network, in evaluation mode.

    Examples
    --------
    >>> import torch
    >>> torch.save(Inception().state_dict(), "weights.pth")
    >>> load_inception("weights.pth").training
    False
    """
    if weights_path is None:
        weights_path = Path(torch.hub.get_dir()) / "checkpoints" / WEIGHTS
        if download and not weights_path.is_file():
            torch.hub.load_state_dict_from_url(WEIGHTS_URL, check_hash=True, weights_only=True, map_location="cpu")
    if not Path(weights_path).is_file():
        raise FileNotFoundError(
            f"No weights of Inception at {str(weights_path)!r}. Download {WEIGHTS_URL} and pass its path, or pass another "
            "feature network."
        )
    weights = torch.load(weights_path, map_location="cpu", weights_only=True)
    network = Inception()
    missing, unexpected = network.load_state_dict(weights, strict=False)
    missing = [name for name in missing if not name.endswith("num_batches_tracked")]  # old files lack these counters
    if missing or unexpected:
        raise ValueError(
            f"{weights_path} does not have the layout of {WEIGHTS}: "
            f"{len(missing)} weights are missing (first: {next(iter(missing), 'none')}) and "
            f"{len(unexpected)} are unknown (first: {next(iter(unexpected), 'none')})."
        )
    return network.eval().requires_grad_(False)
