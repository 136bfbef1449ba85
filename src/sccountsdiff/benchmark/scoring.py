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
from sccountsdiff.benchmark.metrics.bootstrap import take_cells
from sccountsdiff.benchmark.missingness import Missingness, Molecules, valid_sites

logger = logging.getLogger("sccountsdiff")

IMPUTATION = {
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
"""What an imputation can be scored with."""

DENOISING = {"denoised", "held_out"}
"""What denoised cells can be scored with."""

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
    def observed(self) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Entries of the training and of the test cells that are taken at face value; ``None`` for all.

        Which genes are silent in a type is for the training cells to say: hidden counts must not be told to a method.
        """
        if self.protocol == "all":
            return None, None
        observed = self._valid(np.zeros_like(self.truth))
        return observed[: self.train.n_obs], observed[self.train.n_obs :] | (self.truth > 0)

    def sites(self, pattern: Missingness) -> np.ndarray:
        """Entries of the test cells to hide; under the paper's protocol of those that all cells together believe."""
        valid = None if self.protocol == "all" else self._valid(self.truth)[self.train.n_obs :]
        return pattern(self.truth, valid=valid, seed=self.seed)

    def molecules(self, pattern: Molecules) -> tuple[AnnData, np.ndarray]:
        """Test cells with the molecules that methods see, and counts of the hidden ones."""
        seen, held_out = pattern(self.truth, seed=self.seed)
        return AnnData(seen, obs=self.test.obs, var=self.test.var), held_out

    def _valid(self, test_counts: np.ndarray) -> np.ndarray:
        """Valid sites of the training cells followed by the test cells, with these counts for the latter."""
        labels = np.concatenate([self.train.obs[self.label].astype(str), self.labels])
        return valid_sites(sparse.vstack([sparse.csr_matrix(self.train.X), sparse.csr_matrix(test_counts)]), labels)

    def scores(
        self,
        metrics: Sequence[Metric],
        answer: dict[str, np.ndarray],
        n_bootstrap: int = 0,
        bootstrap_cells: int | None = None,
    ) -> list[dict[str, Any]]:
        """Name, value, bootstrap standard error and error message of each metric that applies.

        Parameters
        ----------
        metrics
            The metrics. One that fails does not keep the others from being computed.
        answer
            What a method said and was asked, by the names that metrics have for it: ``imputed``, ``sites`` and, without
            which metrics of draws are left out, ``draws``; or ``denoised`` and ``held_out``.
        n_bootstrap
            Number of resamples of the cells; 0 for no standard error.
        bootstrap_cells
            Cells in each resample, and those that metrics are computed of that cannot afford all; all by default.
        """
        makers = {
            "truth": lambda: self.truth,
            "truth_embedding": lambda: self.truth_embedding,
            "imputed_embedding": lambda: embed(answer["imputed"], self.embedder, self.test.var_names),
            "labels": lambda: self.labels,
            "predicted_labels": lambda: self.classifier.predict(answer["imputed"]),
            "clusters": lambda: leiden_clusters(answer["imputed"], seed=self.seed),
        }
        arrays = dict(answer)
        rows = []
        for metric in metrics:
            if "draws" in metric.needs and "draws" not in answer:
                continue
            row = {"metric": metric.name, "value": np.nan, "se": np.nan, "error": None}
            try:
                arrays |= {need: makers[need]() for need in metric.needs if need not in arrays}
                needed = {need: arrays[need] for need in metric.needs}
                if metric.quadratic and bootstrap_cells is not None:
                    some = np.random.default_rng(self.seed).choice(self.test.n_obs, bootstrap_cells, replace=False)
                    needed = take_cells(needed, np.sort(some))
                row["value"] = float(metric(**needed))
                if n_bootstrap:
                    row["se"] = bootstrap_se(
                        metric, n_resamples=n_bootstrap, n_cells=bootstrap_cells, seed=self.seed, **needed
                    )
            except Exception as error:
                row["error"] = message(error)
                logger.warning("Metric %s failed. %s", metric.name, row["error"])
                logger.debug("", exc_info=True)
            rows.append(row)
        return rows


def available(pattern: Missingness | Molecules) -> set[str]:
    """What answers to a pattern can be scored with.

    Examples
    --------
    >>> sorted(available(Molecules()))
    ['denoised', 'held_out']
    """
    return DENOISING if isinstance(pattern, Molecules) else IMPUTATION


def message(error: Exception) -> str:
    """One line about an error.

    Examples
    --------
    >>> message(ValueError("too small"))
    'ValueError: too small'
    """
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
