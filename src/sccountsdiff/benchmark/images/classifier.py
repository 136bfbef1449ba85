"""A small classifier trained on the spot: it says what a small image shows, and lends its features to distances."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sccountsdiff.benchmark.images.data import CountImages, first_images
from sccountsdiff.benchmark.seeding import global_seed


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
