"""scGPT: a transformer over genes and their values, from scratch or from released weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from sccountsdiff.benchmark.baselines.base import Cells, register_baseline
from sccountsdiff.benchmark.baselines.covariate_codes import CovariateLabel
from sccountsdiff.benchmark.baselines.masking import HidingNetwork, MaskedAutoEncoder, pack
from sccountsdiff.benchmark.baselines.scgpt_network import Checkpoint, SCGPTTransformer
from sccountsdiff.benchmark.baselines.torch_training import Batch, Network
from sccountsdiff.benchmark.baselines.value_transforms import BinnedValues, LogValues
from sccountsdiff.checks import one_of

CLS_VALUE = -2.0  # what the released model has in place of a value of <cls>


@register_baseline("scgpt", uses_covariates=True)
class SCGPT(MaskedAutoEncoder):
    """scGPT from scratch: a transformer over genes and their values predicts the values that are hidden.

    The method of Cui et al. (2024). A token is a gene with its value: the vector of the gene times the value. In
    training some genes of each cell are hidden; they have a flag in place of a value, attend to the genes that are not
    hidden, and their values are regressed on by squared error. To impute, the entries to fill in are the hidden ones.
    Each step sees a random choice of the genes of each cell, as the original does for cells with more genes than it has
    room for. The combination of the categories of all categorical covariates is a label, whose vector is given to the
    decoder, as in the comparison of the CountsDiff paper; continuous covariates are not used.

    Differs from the original: values are log(1 + count / depth), not ranks in 51 bins, so that there is a way back to
    counts: the predicted value is undone and multiplied by the observed depth of the cell. (The mean of logarithms is
    below the logarithm of the mean; that bias is the original's and is left.) Zeros are tokens too, or the model would
    never predict one. The vector of the label is added to what the decoder reads, where the original puts them side by side;
    it starts at 0, and released weights are left as they are. Of the objectives only the prediction of hidden genes is kept. Attention weights have no dropout.
    Of the original's ways to enter a value, its released weights add a vector for the value to that of the gene; that
    one learns little in the few steps there are here, and can be had by ``value_style="continuous"``.

    The original is 512 wide with 12 layers of 8 heads, sees 1,200 genes of a cell at a time, and was trained for 6
    epochs of 33 million cells; all of that can be set. Default settings train for at most ``max_steps`` steps of
    ``batch_size`` cells: about 3 CPU minutes for 128 or more genes, however many cells there are.

    Parameters
    ----------
    n_hidden, n_heads, n_layers, dropout
        Size of the network.
    n_feedforward
        Width of feed-forward layers. Default: as wide as all others.
    n_tokens
        Genes of a cell in a training step, ``None`` for all; imputation uses all.
    value_style
        ``"scaling"`` or ``"continuous"``, see above.
    hidden_shares, max_steps
        Shares of genes that are hidden in training, and steps at most.
    max_epochs, batch_size, lr, weight_decay, patience, ema_decay, n_warmup_steps, validation_share, progress, trainer_kwargs
        Training, the same for all networks of the benchmark.

    Examples
    --------
    >>> import numpy as np
    >>> from anndata import AnnData
    >>> rng = np.random.default_rng(0)
    >>> cells = AnnData(rng.poisson(2, (40, 6)).astype("float32"))
    >>> sites = rng.random(cells.shape) < 0.5
    >>> SCGPT(n_hidden=8, n_heads=2, n_layers=1, max_epochs=1).fit(cells).impute(cells, sites).shape
    (40, 6)
    """

    n_hidden: int = 48
    n_heads: int = 2
    n_layers: int = 3
    dropout: float = 0.0
    n_feedforward: int | None = None
    n_tokens: int | None = 128
    value_style: Literal["continuous", "scaling"] = "scaling"

    def _network(self, cells: Cells) -> Network:
        sizes = (self.n_hidden, self.n_heads, self.n_feedforward or self.n_hidden, self.n_layers)
        transformer = SCGPTTransformer(1 + cells.counts.shape[1], *sizes, self.dropout, self.value_style)
        return HiddenValues(transformer, LogValues(cells), self.coder.label(cells.covariates, self.n_hidden), self)

    def _fill(self, batch: Batch, sites: Tensor, generator: torch.Generator) -> Tensor:
        observed, values = batch.observed, self.network.values
        counts = values.decode(self.network(batch, observed, sites), batch.counts, observed)
        # A cell with nothing to go by is like none that the network was trained on.
        return torch.where(observed.any(dim=1, keepdim=True), counts, values.gene_mean)


@register_baseline("scgpt_pretrained", needs_weights=True)
class SCGPTPretrained(SCGPT):
    """scGPT from released weights, as they are or fine-tuned on the training cells.

    The model of Cui et al. (2024), pre-trained on 33 million human cells. Its values are bins: the non-zero counts of a
    cell fall into 50 bins with as many genes in each, zeros are bin 0. A predicted bin becomes a count by the edges of
    the bins of the same cell, known from its observed counts; edges between two bins are interpolated.

    Pre-training knew only genes with counts, so the model says what an expressed gene is expected to have, and has
    never seen a zero. Without fine-tuning zeros are therefore no part of the input, and the answer is multiplied by the
    share of training cells that express the gene.

    Differs from the original: counts that fill several bins get the middle one, not one by chance. There is no iterative
    generation: all hidden genes are predicted in one pass. Fine-tuning is as in :class:`SCGPT`, on bins, with zeros in
    the input and among the targets.

    All 500 genes of a cell take about 25 GFLOP; fine-tuning is for a GPU.

    Parameters
    ----------
    weights_path
        Folder with ``best_model.pt``, ``vocab.json`` and ``args.json``.
    unknown_genes
        What to do if genes are not in the vocabulary, which is one of gene symbols: ``"error"``, or ``"mean"`` to fill
        them in by their mean over training cells times the depth of the cell.
    max_epochs
        Epochs of fine-tuning; by default none.
    n_tokens, hidden_shares, max_steps, batch_size, lr, weight_decay, patience, ema_decay, n_warmup_steps, validation_share
        As in :class:`SCGPT`; the size of the network and the style of values are those of the weights.

    Examples
    --------
    >>> import numpy as np
    >>> from anndata import AnnData
    >>> SCGPTPretrained().fit(AnnData(np.ones((3, 2))))
    Traceback (most recent call last):
        ...
    ValueError: scgpt_pretrained needs weights: give the folder of a released checkpoint as weights_path.
    """

    weights_path: str | Path | None = None
    unknown_genes: Literal["error", "mean"] = "error"
    max_epochs: int = 0
    batch_size: int = 32
    lr: float = 1e-4

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("unknown_genes", self.unknown_genes, ("error", "mean"))
        if self.weights_path is not None:
            self.weights_path = Path(self.weights_path)  # results go by what is there, not by how it is called

    def _network(self, cells: Cells) -> Network:
        if self.weights_path is None:
            raise ValueError(f"{self.name} needs weights: give the folder of a released checkpoint as weights_path.")
        checkpoint = Checkpoint.read(self.weights_path)
        known = self._known_genes(checkpoint)
        expressed = replace(cells, counts=cells.counts > 0).gene_means()
        self.expressed = torch.as_tensor(expressed, dtype=torch.float32)
        values = BinnedValues(cells, checkpoint.settings["n_bins"])
        label = self.coder.label(cells.covariates, checkpoint.settings["embsize"])
        network = HiddenValues(checkpoint.transformer(self.genes), values, label, self)
        network.known = torch.as_tensor(known)
        network.cls_value, network.sees_zeros = checkpoint.settings["pad_value"], self.max_epochs > 0
        return network

    def _known_genes(self, checkpoint: Checkpoint) -> np.ndarray:
        unknown = checkpoint.unknown(self.genes)
        if unknown and (self.unknown_genes == "error" or len(unknown) == len(self.genes)):
            raise ValueError(
                f"{len(unknown)} of {len(self.genes)} genes are not in the vocabulary of {checkpoint.folder}, "
                f"which has names like {[gene for gene in checkpoint.vocabulary if gene[0] != '<'][:3]}: {unknown[:10]}"
                f"{' ...' if len(unknown) > 10 else ''}. Rename or drop them, or set unknown_genes='mean'."
            )
        return ~self.genes.isin(unknown)

    def _fill(self, batch: Batch, sites: Tensor, generator: torch.Generator) -> Tensor:
        counts = super()._fill(batch, sites, generator)
        if self.max_epochs == 0:
            counts = counts * self.expressed.to(counts.device)
        values = self.network.values
        mean = values.gene_mean * values.depth(batch.counts, batch.observed)
        return torch.where(self.network.known & batch.observed.any(dim=1, keepdim=True), counts, mean)


class HiddenValues(HidingNetwork):
    """Predicts values of hidden genes from those of observed ones.

    Parameters
    ----------
    transformer
        Its vocabulary is ``<cls>`` and then the genes.
    values
        From counts to values and back.
    label
        Vectors of the combinations of covariates.
    settings
        Those of the method: shares of genes that are hidden in training, and genes of a cell in training.

    Attributes
    ----------
    cls_value
        Value of ``<cls>``.
    known
        Genes that the transformer knows, boolean. Default: all.
    sees_zeros
        Whether observed zeros are part of the input.
    """

    cls_value = CLS_VALUE
    sees_zeros = True

    def __init__(self, transformer: SCGPTTransformer, values: LogValues, label: CovariateLabel, settings: SCGPT):
        super().__init__(values, settings)
        self.label = label
        self.transformer, self.n_tokens = transformer, settings.n_tokens
        self.register_buffer("known", torch.ones_like(values.gene_mean, dtype=torch.bool))

    def errors(self, batch: Batch, observed: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Of a random choice of genes, (cells, tokens)."""
        index, valid, predicted = self._predict(batch, observed, hidden, self.n_tokens)
        target = self.values(batch.counts, observed).gather(1, index)
        return predicted - target, valid & hidden.gather(1, index)

    def forward(self, batch: Batch, observed: Tensor, asked: Tensor) -> Tensor:
        """Predicted values, (cells, genes), 0 where not asked."""
        index, valid, predicted = self._predict(batch, observed, asked)
        return torch.zeros_like(batch.counts).scatter(1, index, predicted * valid)

    def _predict(
        self, batch: Batch, observed: Tensor, asked: Tensor, n_tokens: int | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Genes of the tokens, which of them are no padding, and their predicted values, all (cells, tokens)."""
        counts = batch.counts
        context = observed if self.sees_zeros else observed & (counts > 0)
        index, valid = pack((context | asked) & self.known, n_tokens)
        values = self.values(counts, observed).gather(1, index)
        genes, values, shown = (
            nn.functional.pad(x, (1, 0), value=first)
            for x, first in ((index + 1, 0), (values, self.cls_value), (valid & context.gather(1, index), True))
        )
        return index, valid, self.transformer(genes, values, shown, self.label(batch.categories, batch.unseen))[:, 1:]
