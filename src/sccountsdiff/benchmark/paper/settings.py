"""What each row of the paper's tables is trained with here, next to what the paper and its code say."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from torch import nn

from sccountsdiff.benchmark.baselines import Baseline
from sccountsdiff.benchmark.baselines.cells import Cells
from sccountsdiff.benchmark.baselines.countsdiff import CountsDiff
from sccountsdiff.benchmark.baselines.torch_training import TorchBaseline
from sccountsdiff.benchmark.paper.atlases import Atlas
from sccountsdiff.benchmark.paper.rows import ROWS, Budget, Row

N_CLASSES, N_CATEGORIES = 1000, 10
"""Largest count plus 1, and categories of each covariate, that parameters are counted for: those of the atlases are not known
before their files are read."""

COLUMNS = ("parameters", "steps", "batch", "learning rate", "inputs")


@dataclass(frozen=True)
class Sizes:
    """What the size of a network depends on.

    Attributes
    ----------
    n_genes
        Number of genes.
    n_hidden
        Width of CountsDiff's network for the atlas.
    n_covariates
        Number of covariates, each with ``N_CATEGORIES`` categories.
    """

    n_genes: int
    n_hidden: int
    n_covariates: int

    @property
    def n_categories(self) -> int:
        """Categories of all covariates."""
        return N_CATEGORIES * self.n_covariates


@dataclass(frozen=True)
class Published:
    """What the paper or its code says of a row.

    Attributes
    ----------
    parameters
        Parameters of the authors' network, from its layers; ``None`` if nothing is trained or nothing is said.
    training
        Length, batch size and learning rate, as texts.
    inputs
        What the network is given.
    differs
        Where our row is another one, and why.

    Examples
    --------
    >>> PUBLISHED["ReMDM"].training[1]
    '512'
    """

    parameters: Callable[[Sizes], int] | None
    training: tuple[str, str, str]
    inputs: str
    differs: str


def _layer(width: int, wide: int) -> int:
    """Attention with biases, two feed-forward layers, two normalisations."""
    return 4 * width * (width + 1) + 2 * width * wide + wide + width + 4 * width


def _gene_tokens(sizes: Sizes) -> int:
    """What CountsDiff and ReMDM have in common: three layers, vectors of genes and categories, the time."""
    width = sizes.n_hidden
    return 3 * _layer(width, 4 * width) + (sizes.n_genes + sizes.n_categories) * width + 2 * width * (width + 1)


def _countsdiff(sizes: Sizes) -> int:
    return _gene_tokens(sizes) + 2 * sizes.n_hidden + sizes.n_hidden + 1


def _blackout(sizes: Sizes) -> int:
    return _countsdiff(Sizes(sizes.n_genes, sizes.n_hidden, 0))


def _remdm(sizes: Sizes) -> int:
    return _gene_tokens(sizes) + (N_CLASSES + 1) * sizes.n_hidden + N_CLASSES * (sizes.n_hidden + 1)


def _xtrimogene(sizes: Sizes) -> int:
    values = 2 * 100 + 100 * 101 + (100 + 2) * 128
    ends = (sizes.n_genes + 1) * 128 + 128 * 129 + 2 * 2 * 128 + 2 * 128 + 129
    return 6 * _layer(128, 4 * 128) + values + ends


def _scgpt(sizes: Sizes) -> int:
    embeddings = (sizes.n_genes + 3) * 128 + 2 * 128 + 2 * 128 + 128 * 129 + 2 * 128
    label = (
        N_CATEGORIES * 128 + 2 * 128
    )  # as many combinations as there are in the cells that parameters are counted with
    return 4 * _layer(128, 256) + embeddings + label + 256 * 128 + 128 + 128 * 129 + 129


def _scidpms(sizes: Sizes) -> int:
    block = (128 + 1) * 64 + (49 + 1) * 128 + 2 * (64 + 1) * 128 + _layer(64, 64)
    return 6 * block + 2 * 128 * 129 + 3 * 64 + 64 * 65 + 65 + 16


def _gain(sizes: Sizes) -> int:
    return 2 * (4 * sizes.n_genes**2 + 3 * sizes.n_genes)


def _hivae(n_likelihood: int) -> Callable[[Sizes], int]:
    def count(sizes: Sizes) -> int:
        encoder = 10 * (sizes.n_genes + 1) + 2 * 64 * (sizes.n_genes + 10 + 1) + 64 * 11
        return encoder + 65 * sizes.n_genes + n_likelihood * 11 * sizes.n_genes

    return count


_COUNTS_AND_MASK, _ALL = "counts, mask", "counts, mask, covariates"
_NOTHING = ("", "", "")
_UNSEEN = "fitted to training cells with entries hidden at random, not to the incomplete test cells"
_TRANSFORMER = "normalisation before attention, not after, and GELU in place of ReLU, as in all our transformers"
_MARKED = "depth of the cell as a further token; missing entries are marked, there they are left out of attention"
_LOG = "log counts over the observed depth in place of {}, undone in the answer: cells of all depths matter alike"
_TOTALS = "log counts over the depth of the shown genes in place of counts per 10,000: cells of which less is shown look alike"
PUBLISHED: dict[str, Published] = {
    "Zero imputation": Published(None, _NOTHING, "", ""),
    "Mean imputation": Published(
        None, _NOTHING, "training cells", "also of the validation cells, as nothing is tuned on them"
    ),
    "Conditional Mean": Published(
        None, _NOTHING, "training cells, covariates", "also of the validation cells, as nothing is tuned on them"
    ),
    "MAGIC": Published(
        None,
        _NOTHING,
        "training and test cells",
        "neighbours chosen by the error of held-out entries, not by scFID, which rewards noise in a mean; the square root is "
        "undone, which the script leaves out, so that most of what it fills in is rounded to 0; totals of observed counts, "
        "there of all",
    ),
    "scIDPMs": Published(
        _scidpms,
        ("65 epochs (fetus), 120 (heart)", "72", "0.0005"),
        _COUNTS_AND_MASK,
        "a learnt vector for each gene in place of a sinusoid; " + _LOG.format("raw counts"),
    ),
    "GAIN": Published(
        _gain,
        ("10,000 steps", "128", "0.001"),
        _COUNTS_AND_MASK,
        "noise and hints are drawn for each network by itself, which changes no mean; "
        + f"{_UNSEEN}; {_LOG.format('counts')}",
    ),
    "HI-VAE (Poisson)": Published(
        _hivae(1),
        ("100 epochs", "256", "0.001"),
        _COUNTS_AND_MASK,
        f"fixed temperature; the encoder sees a part of each cell: {_UNSEEN}",
    ),
    "HI-VAE (Gaussian)": Published(
        _hivae(2),
        ("100 epochs", "256", "0.001"),
        _COUNTS_AND_MASK,
        f"fixed temperature; the encoder sees a part of each cell: {_UNSEEN}",
    ),
    "scGPT (scratch)": Published(
        _scgpt,
        ("10 epochs", "64", "0.0001"),
        _ALL,
        "a hidden gene attends to observed ones only and has a flag for a value, as in scGPT's generation; the script shows it "
        "to all as the value -1. Missing entries are left out, there they are zeros. The label is added before the decoder, "
        "which makes it as large as the released one; " + _TOTALS,
    ),
    "scGPT (pretrained)": Published(
        None,
        ("10 epochs", "64", "0.0001"),
        _ALL,
        "values are bins, as in the pre-training, not logs; all released weights are used, where the script leaves out those of "
        "attention, which have other names in its layers, and of the decoder's first layer, which has another size",
    ),
    "xTrimoGene": Published(
        _xtrimogene,
        ("5 epochs", "8 × 128", "0.0001"),
        _COUNTS_AND_MASK,
        "exact attention in the encoder and linear attention in the decoder, there the other way round; hidden values are "
        "never shown as random ones, as the cells to impute say what is hidden; vectors of genes and values are multiplied as "
        f"well as added; {_TOTALS}. As in the script, the 9,766 steps of warm-up outlast the training on the heart atlas",
    ),
    "Forest-Diffusion": Published(
        None,
        ("20 levels, 100 trees", "", "0.3"),
        _ALL,
        "fitted to training cells, there to the incomplete test cells as well",
    ),
    "ReMDM": Published(
        _remdm,
        ("100,000 steps (fetus), 50,000 (heart)", "512", "0.0002"),
        _ALL,
        "width of CountsDiff for the atlas, as the paper's ratio of parameters says; the script has 128 for both. MDLM's loss, "
        "schedule and step, as in ReMDM; the script has cross-entropy of all entries, a cosine, and reveals all entries at the "
        "first step, of which it masks some again. Moving average of the weights and warm-up, as for CountsDiff; not told the "
        f"time; one token for all covariates; missing entries are masked, there left out of attention; {_TRANSFORMER}",
    ),
    "Blackout": Published(
        _blackout,
        ("100,000 steps (fetus), 50,000 (heart)", "512", "0.0002"),
        _COUNTS_AND_MASK,
        f"{_MARKED}; {_TRANSFORMER}",
    ),
    "CountsDiff": Published(
        _countsdiff,
        ("100,000 steps (fetus), 50,000 (heart)", "512", "0.0002"),
        _ALL,
        f"{_MARKED}; {_TRANSFORMER}: none is in the loss or the sampler",
    ),
}
"""By the name of the row, from the paper, its appendix and the configuration of its code."""


def stand_in(n_genes: int, atlas: Atlas) -> Cells:
    """A few cells of the atlas's size in genes, classes and covariates, to build networks with."""
    counts = np.ones((N_CATEGORIES, n_genes), dtype=np.float32)
    counts[0, 0] = N_CLASSES - 1
    labels = [f"{k}" for k in range(N_CATEGORIES)]
    return Cells(counts, np.ones(counts.shape, dtype=bool), pd.DataFrame(dict.fromkeys(atlas.covariates, labels)))


def untrained(method: Baseline, cells: Cells) -> nn.Module | None:
    """The network of a method before training; ``None`` if it has none, or takes one from a file."""
    if not isinstance(method, TorchBaseline | CountsDiff) or method.needs_weights:
        return None
    method.genes = pd.Index([f"gene{i}" for i in range(cells.counts.shape[1])])
    return method.untrained(
        cells if method.uses_covariates else Cells(cells.counts, cells.observed, cells.covariates[[]])
    )


def n_parameters(network: nn.Module) -> int:
    """Numbers that training changes.

    Examples
    --------
    >>> n_parameters(nn.Linear(3, 2))
    8
    """
    return sum(parameter.numel() for parameter in network.parameters() if parameter.requires_grad)


def training_of(method: Baseline, n_training: int) -> tuple[int, int, float] | None:
    """Optimiser steps, cells in each and learning rate; ``None`` if nothing is trained step by step."""
    if isinstance(method, CountsDiff):
        batch_size, lr = method.train_kwargs["batch_size"], method.train_kwargs["plan_kwargs"]["lr"]
    elif isinstance(method, TorchBaseline):
        batch_size, lr = method.batch_size, method.lr
    else:
        return None
    of_epoch = math.ceil(n_training / batch_size)
    if isinstance(method, TorchBaseline):
        of_epoch = min(of_epoch, method.trainer_kwargs.get("limit_train_batches", of_epoch))
    return (method.max_epochs or 0) * of_epoch, batch_size, lr


def settings_table(atlas: Atlas, rows: tuple[Row, ...] = ROWS) -> pd.DataFrame:
    """Parameters, training and inputs of each row at full size, next to the paper's, and where and why they differ.

    Parameters are counted for a largest count of 999 and 10 categories of each covariate.

    Parameters
    ----------
    atlas
        The data set, with the paper's settings for it.
    rows
        Rows of the table.

    Returns
    -------
    A row for each row; for each of parameters, steps, batch, learning rate and inputs a column ``ours`` and one ``paper``, and
    ``differs``.

    Examples
    --------
    >>> from sccountsdiff.benchmark.paper import FETUS
    >>> table = settings_table(FETUS, ROWS[-1:])
    >>> table.loc["CountsDiff", ("batch", "ours")], table.loc["CountsDiff", ("batch", "paper")]
    ('512', '512')
    """
    budget, cells = Budget(atlas, atlas.n_cells), stand_in(atlas.n_genes, atlas)
    sizes = Sizes(atlas.n_genes, atlas.n_hidden, len(atlas.covariates))
    lines = {}
    for row in rows:
        method, published = row.method(budget), PUBLISHED[row.name]
        network, training = untrained(method, cells), training_of(method, budget.n_training)
        ours = ["" if network is None else f"{n_parameters(network):,}"]
        ours += ["", "", ""] if training is None else [f"{training[0]:,}", f"{training[1]:,}", f"{training[2]:g}"]
        ours.append(", ".join(["counts", *["mask"] * method.uses_mask, *["covariates"] * method.uses_covariates]))
        theirs = ["" if published.parameters is None else f"{published.parameters(sizes):,}"]
        theirs += [*published.training, published.inputs]
        pairs = zip(COLUMNS, ours, theirs, strict=True)
        lines[row.name] = {
            (c, who): text for c, *texts in pairs for who, text in zip(("ours", "paper"), texts, strict=True)
        }
        lines[row.name]["differs", ""] = published.differs
    return pd.DataFrame.from_dict(lines, orient="index")
