"""One split of a data set, and the scores of what a method imputes in it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from anndata import AnnData
from scipy import sparse

from sccountsdiff.benchmark.downstream import CellTypeClassifier, leiden_clusters
from sccountsdiff.benchmark.metrics import Metric, bootstrap_se, embed, load_embedder, train_embedder
from sccountsdiff.benchmark.missingness import Missingness, valid_sites

logger = logging.getLogger("sccountsdiff")

AVAILABLE = {
    "truth",
    "imputed",
    "sites",
    "draws",
    "truth_embedding",
    "imputed_embedding",
    "labels",
    "predicted_labels",
    "clusters",
}
"""What an imputation can be scored with; a metric that needs anything else belongs to another kind of task."""

NEEDS_LABELS = {"labels", "predicted_labels", "clusters"}
NEEDS_TRAINING = {"truth_embedding", "imputed_embedding", "predicted_labels"}


@dataclass(eq=False)
class Split:
    """Training and test cells, with the models that metrics share; each is made when it is first asked for.

    Examples
    --------
    >>> from sccountsdiff.benchmark.missingness import MCAR
    >>> from sccountsdiff.datasets import pbmc68k
    >>> cells = pbmc68k()
    >>> split = Split(cells[:600], cells[600:], label="cell_type", seed=0)
    >>> split.sites(MCAR(0.5)).shape
    (100, 765)
    """

    train: AnnData
    test: AnnData
    label: str | None
    seed: int
    protocol: Literal["all", "paper"] = "all"
    embedder_path: str | Path | None = None

    @cached_property
    def truth(self) -> np.ndarray:
        """Counts of the test cells."""
        counts = self.test.X
        return np.asarray(counts.toarray() if hasattr(counts, "toarray") else counts)

    @cached_property
    def labels(self) -> np.ndarray:
        """Types of the test cells."""
        return self.test.obs[self.label].astype(str).to_numpy(dtype=str)

    @cached_property
    def classifier(self) -> CellTypeClassifier:
        """Trained on the training cells."""
        return CellTypeClassifier(seed=self.seed).fit(self.train.X, self.train.obs[self.label].astype(str))

    @cached_property
    def embedder(self) -> Any:
        """An scVI model of the training cells, or the one that was saved."""
        if self.embedder_path is not None:
            return load_embedder(self.embedder_path, self.test.var_names)
        return train_embedder(self.train, seed=self.seed)

    @cached_property
    def truth_embedding(self) -> np.ndarray:
        """Embedded test cells."""
        return embed(self.truth, self.embedder, self.test.var_names)

    @cached_property
    def believed(self) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Entries of the training and of the test cells that are taken at face value; ``None`` for all.

        Which genes are silent in a type is for the training cells to say: hidden counts must not be told to a method.
        """
        if self.protocol == "all":
            return None, None
        believed = self._valid(np.zeros_like(self.truth))
        return believed[: self.train.n_obs], believed[self.train.n_obs :] | (self.truth > 0)

    def sites(self, pattern: Missingness) -> np.ndarray:
        """Entries of the test cells to hide; under the paper's protocol of those that all cells together believe."""
        valid = None if self.protocol == "all" else self._valid(self.truth)[self.train.n_obs :]
        return pattern(self.truth, valid=valid, seed=self.seed)

    def _valid(self, test_counts: np.ndarray) -> np.ndarray:
        """Valid sites of the training cells followed by the test cells, with these counts for the latter."""
        labels = np.concatenate([self.train.obs[self.label].astype(str), self.labels])
        return valid_sites(sparse.vstack([sparse.csr_matrix(self.train.X), sparse.csr_matrix(test_counts)]), labels)

    def scores(
        self,
        metrics: Sequence[Metric],
        imputed: np.ndarray,
        sites: np.ndarray,
        draws: np.ndarray | None = None,
        n_bootstrap: int = 0,
    ) -> list[dict[str, Any]]:
        """Name, value, bootstrap standard error and error message of each metric that applies.

        Parameters
        ----------
        metrics
            The metrics. One that fails does not keep the others from being computed.
        imputed
            Counts (cells, genes) with the sites filled in.
        sites
            What was hidden.
        draws
            (draws, cells, genes); metrics of draws are left out without.
        n_bootstrap
            Number of resamples of the cells; 0 for no standard error.
        """
        makers = {
            "truth": lambda: self.truth,
            "imputed": lambda: imputed,
            "sites": lambda: sites,
            "draws": lambda: draws[:, sites],
            "truth_embedding": lambda: self.truth_embedding,
            "imputed_embedding": lambda: embed(imputed, self.embedder, self.test.var_names),
            "labels": lambda: self.labels,
            "predicted_labels": lambda: self.classifier.predict(imputed),
            "clusters": lambda: leiden_clusters(imputed, seed=self.seed),
        }
        arrays: dict[str, np.ndarray] = {}
        rows = []
        for metric in metrics:
            if draws is None and "draws" in metric.needs:
                continue
            row = {"metric": metric.name, "value": np.nan, "se": np.nan, "error": None}
            try:
                arrays |= {need: makers[need]() for need in metric.needs if need not in arrays}
                row["value"] = float(metric(**arrays))
                if n_bootstrap:
                    row["se"] = bootstrap_se(metric, n_resamples=n_bootstrap, seed=self.seed, **arrays)
            except Exception as error:
                row["error"] = message(error)
                logger.warning("Metric %s failed. %s", metric.name, row["error"])
                logger.debug("", exc_info=True)
            rows.append(row)
        return rows


def message(error: Exception) -> str:
    """One line about an error.

    Examples
    --------
    >>> message(ValueError("too small"))
    'ValueError: too small'
    """
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
