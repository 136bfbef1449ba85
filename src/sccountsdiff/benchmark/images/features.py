"""Networks in whose features images are compared: Inception-v3, and a small classifier trained on the spot."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sccountsdiff.benchmark.images.data import CountImages, first_images
from sccountsdiff.seeding import global_seed

WEIGHTS = "pt_inception-2015-12-05-6726825d.pth"
WEIGHTS_URL = f"https://github.com/mseitzer/pytorch-fid/releases/download/fid_weights/{WEIGHTS}"

POOLS = {
    "average": nn.AvgPool2d(3, 1, 1, count_include_pad=False),  # as in TensorFlow: what lies outside does not count
    "max": nn.MaxPool2d(3, 1, 1),
    "halve": nn.MaxPool2d(3, 2),
}
ROW, COLUMN, FORK = (1, 7), (7, 1), ((1, 3), (3, 1))


def _conv(n_in: int, n_out: int, kernel: int | tuple, stride: int = 1, padding: str = "same") -> nn.Sequential:
    conv = nn.Conv2d(n_in, n_out, kernel, stride, padding, bias=False)
    return nn.Sequential(OrderedDict(conv=conv, bn=nn.BatchNorm2d(n_out, eps=0.001), relu=nn.ReLU(inplace=True)))


class _Mixed(nn.Module):
    """Parallel paths of convolutions and a pooling path, side by side in the output.

    Parameters
    ----------
    n_in
        Channels that come in.
    paths
        For each path its name and convolutions as (channels, kernel). The convolutions are called ``name_1``,
        ``name_2`` ... as in the published weights, a single one just ``name``. A path may end in two convolutions side by
        side, (channels, kernel, kernel), which are told apart by ``a`` and ``b``.
    pool
        ``"average"``, ``"max"``, or ``"halve"``: every path ends with stride 2 and pooling has no convolution.
    n_pool
        Channels of the convolution after pooling.
    """

    def __init__(self, n_in: int, paths: dict[str, Sequence], pool: str = "average", n_pool: int = 0):
        super().__init__()
        self.pool, self.paths = pool, []
        for path, layers in paths.items():
            n, stages = n_in, []
            for number, (n_out, *kernels) in enumerate(layers, 1):
                ending = (2, "valid") if pool == "halve" and number == len(layers) else ()
                stage = path if len(layers) == 1 else f"{path}_{number}"
                stages.append([stage] if len(kernels) == 1 else [f"{stage}a", f"{stage}b"])
                for name, kernel in zip(stages[-1], kernels, strict=True):
                    self.add_module(name, _conv(n, n_out, kernel, *ending))
                n = n_out
            self.paths.append(stages)
        self.branch_pool = _conv(n_in, n_pool, 1) if n_pool else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        outputs = []
        for stages in self.paths:
            parts = [x]
            for names in stages:
                parts = [self.get_submodule(name)(parts[0]) for name in names]
            outputs += parts
        return torch.cat([*outputs, self.branch_pool(POOLS[self.pool](x))], 1)


def _six(n: int) -> _Mixed:
    paths = {
        "branch1x1": [(192, 1)],
        "branch7x7": [(n, 1), (n, ROW), (192, COLUMN)],
        "branch7x7dbl": [(n, 1), (n, COLUMN), (n, ROW), (n, COLUMN), (192, ROW)],
    }
    return _Mixed(768, paths, n_pool=192)


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
        self.Conv2d_1a_3x3 = _conv(3, 32, 3, 2, "valid")
        self.Conv2d_2a_3x3 = _conv(32, 32, 3, 1, "valid")
        self.Conv2d_2b_3x3 = _conv(32, 64, 3)
        self.pool_2 = nn.MaxPool2d(3, 2)
        self.Conv2d_3b_1x1 = _conv(64, 80, 1)
        self.Conv2d_4a_3x3 = _conv(80, 192, 3, 1, "valid")
        self.pool_4 = nn.MaxPool2d(3, 2)
        double = {"branch3x3dbl": [(64, 1), (96, 3), (96, 3)]}
        five = {"branch1x1": [(64, 1)], "branch5x5": [(48, 1), (64, 5)]} | double
        for letter, n_in, n_pool in (("b", 192, 32), ("c", 256, 64), ("d", 288, 64)):
            self.add_module(f"Mixed_5{letter}", _Mixed(n_in, five, n_pool=n_pool))
        self.Mixed_6a = _Mixed(288, {"branch3x3": [(384, 3)]} | double, "halve")
        self.Mixed_6b, self.Mixed_6c, self.Mixed_6d, self.Mixed_6e = _six(128), _six(160), _six(160), _six(192)
        far = {"branch7x7x3": [(192, 1), (192, ROW), (192, COLUMN), (192, 3)]}
        self.Mixed_7a = _Mixed(768, {"branch3x3": [(192, 1), (320, 3)]} | far, "halve")
        seven = {"branch1x1": [(320, 1)], "branch3x3": [(384, 1), (384, *FORK)]}
        seven["branch3x3dbl"] = [(448, 1), (384, 3), (384, *FORK)]
        self.Mixed_7b, self.Mixed_7c = _Mixed(1280, seven, "average", 192), _Mixed(2048, seven, "max", 192)
        self.fc = nn.Linear(2048, 1008)

    def forward(self, images: Tensor) -> Tensor:
        """Features of images with pixels 0 to 255, ``(images, 3, height, width)``; grey ones count as three channels."""
        x = images.expand(-1, 3, -1, -1).float() / 255
        x = 2 * F.interpolate(x, (299, 299), mode="bilinear", align_corners=False) - 1
        for name, block in self.named_children():
            x = x if name == "fc" else block(x)
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


class Classifier(nn.Module):
    """Two convolutions, 64 features, one score for each class.

    Parameters
    ----------
    shape
        Channels, height and width.
    max_count
        Largest value of a pixel.
    n_classes
        Number of classes.

    Examples
    --------
    >>> import torch
    >>> network = Classifier((1, 8, 8), 16, 10)
    >>> network(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 64])
    """

    num_features = 64

    def __init__(self, shape: tuple[int, int, int], max_count: int, n_classes: int):
        super().__init__()
        self.max_count = max_count
        self.convolutions = nn.Sequential(
            nn.Conv2d(shape[0], 32, 3, padding=1), nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
            nn.AdaptiveMaxPool2d(4), nn.Flatten(),
        )  # fmt: skip
        self.features = nn.Linear(64 * 16, self.num_features)
        self.scores = nn.Linear(self.num_features, n_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Features of each image."""
        return F.relu(self.features(self.convolutions(images.float() / self.max_count)))

    def logits(self, features: Tensor) -> Tensor:
        """Class scores."""
        return self.scores(features)

    @torch.inference_mode()
    def agreement(self, images: Tensor, classes: Tensor) -> float:
        """Share of images taken for the class they should show."""
        device = self.scores.weight.device
        shown = [self.logits(self(part.to(device))).argmax(1).cpu() for part in images.split(500)]
        return (torch.cat(shown) == classes.cpu()).float().mean().item()


def train_classifier(data: CountImages, *, n_epochs: int = 15, seed: int = 0, device: str = "cpu") -> Classifier:
    """Train a classifier on real images, held in memory.

    Parameters
    ----------
    data
        Images with one class each.
    n_epochs
        Passes over them.
    seed
        Seed.
    device
        Where to train.

    Returns
    -------
    The trained classifier, in evaluation mode.

    Examples
    --------
    >>> from sccountsdiff.benchmark.images import load_images
    >>> splits = load_images("digits")
    >>> network = train_classifier(splits.train, n_epochs=1)
    >>> images, classes = first_images(splits.heldout, 100)
    >>> network.agreement(images, classes) > 0.1
    True
    """
    if data.multi_label:
        raise ValueError("The classifier needs images with one class each; these have attributes.")
    images, classes = (part.to(device) for part in first_images(data, len(data)))
    with global_seed(seed):
        network = Classifier(data.shape, data.max_count, len(data.names)).to(device)
        optimizer = torch.optim.AdamW(network.parameters(), lr=2e-3)
        for _ in range(n_epochs):
            for chosen in torch.randperm(len(images)).to(device).split(64):
                loss = F.cross_entropy(network.logits(network(images[chosen])), classes[chosen])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    return network.eval().requires_grad_(False)
