"""scFID: Fréchet distance of cells embedded by scVI."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from anndata import AnnData
from scipy import linalg, sparse

from sccountsdiff.benchmark.metrics.registry import register_input, register_metric
from sccountsdiff.benchmark.quiet import quiet
from sccountsdiff.benchmark.scvi_training import fit_scvi
from sccountsdiff.data.counts import get_matrix
from sccountsdiff.seeding import global_seed

if TYPE_CHECKING:
    from scvi.model import SCVI

    from sccountsdiff.benchmark.scoring import Split

logger = logging.getLogger("sccountsdiff")


@register_metric("scfid", direction="lower", group="distributional")
def scfid(truth_embedding: np.ndarray, imputed_embedding: np.ndarray) -> float:
    """Fréchet distance between the embeddings of true and of imputed cells.

    The squared Wasserstein-2 distance of two normal distributions with their means and covariances.

    Parameters
    ----------
    truth_embedding, imputed_embedding
        Embedded cells (cells, dimensions), see :func:`embed`.

    Returns
    -------
    The squared distance, 0 at best.

    Examples
    --------
    A shift by 3 in each of two dimensions:

    >>> import numpy as np
    >>> cells = np.random.default_rng(0).normal(size=(100, 2))
    >>> round(scfid(cells, cells + 3), 6)
    18.0
    """
    a, b = (np.asarray(e, dtype=np.float64) for e in (truth_embedding, imputed_embedding))
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1] or min(len(a), len(b)) < 2:
        raise ValueError(
            "truth_embedding and imputed_embedding must be matrices of two or more cells in the same dimensions, "
            f"found {a.shape} and {b.shape}."
        )
    cov_a, cov_b = (np.atleast_2d(np.cov(e, rowvar=False)) for e in (a, b))
    # The trace of (cov_a cov_b)^(1/2), by way of the symmetric root of cov_a, whose product stays symmetric.
    values, vectors = linalg.eigh(cov_a)
    root = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    cross = np.sqrt(np.maximum(linalg.eigvalsh(root @ cov_b @ root), 0)).sum()
    distance = np.sum((a.mean(axis=0) - b.mean(axis=0)) ** 2) + np.trace(cov_a) + np.trace(cov_b) - 2 * cross
    return float(max(distance, 0.0))


def _embedder(split: Split) -> SCVI:
    """An scVI model of the training cells, or the one that was saved."""
    if split.embedder_path is not None:
        return load_embedder(split.embedder_path, split.test.var_names)
    return train_embedder(split.train, seed=split.seed)


@register_input("truth_embedding", needs_training=True)
def _truth_embedding(split: Split) -> np.ndarray:
    return _imputed_embedding(split, split.truth)


@register_input("imputed_embedding", needs_training=True)
def _imputed_embedding(split: Split, imputed: np.ndarray) -> np.ndarray:
    return embed(imputed, split.once(_embedder), split.test.var_names)


def train_embedder(
    train: AnnData,
    *,
    layer: str | None = None,
    n_latent: int = 10,
    max_epochs: int | None = None,
    seed: int = 0,
    **train_kwargs,
) -> SCVI:
    """An scVI model of the training cells, to embed true and imputed cells alike.

    Parameters
    ----------
    train
        Training cells with raw counts; not changed.
    layer
        Layer with the counts; ``X`` by default.
    n_latent
        Dimensions of the embedding.
    max_epochs
        Epochs at most; by default those of scvi-tools for the number of cells.
    seed
        Seed of the training.
    **train_kwargs
        Further arguments of :meth:`scvi.model.SCVI.train`.

    Returns
    -------
    The trained model, for :func:`embed`.

    Examples
    --------
    >>> import numpy as np
    >>> from anndata import AnnData
    >>> cells = AnnData(np.random.default_rng(0).poisson(2, (40, 6)).astype("float32"))
    >>> model = train_embedder(cells, n_latent=3, max_epochs=1)
    >>> embed(cells.X, model).shape
    (40, 3)
    """
    counts = sparse.csr_matrix(get_matrix(train, layer), dtype=np.float32)
    cells = AnnData(counts, var=pd.DataFrame(index=train.var_names))
    train_kwargs["max_epochs"] = max_epochs
    return fit_scvi(cells, model_kwargs={"n_latent": n_latent}, train_kwargs=train_kwargs, seed=seed)


def load_embedder(path: str | Path, genes: pd.Index, *, allow_pickle: bool = False) -> SCVI:
    """A saved scVI model, such as that of the CELLxGENE census, made ready for cells with the given genes.

    Genes that the model does not know are left out; genes that it knows and the cells lack count as 0, the scvi-tools rule
    for query data. Cells get the first batch, and the first category of each covariate, that the model knows, and 0 for
    continuous ones: models with scvi-tools' default ``encode_covariates=False``, as that of the census, do not look at
    them when they embed.

    Parameters
    ----------
    path
        Folder written by :meth:`scvi.model.SCVI.save`.
    genes
        Gene names of the cells, spelt as in the model.
    allow_pickle
        Models of scvi-tools are pickles, which can run any code when they are loaded: ``True`` says that you trust who made
        this one. So does the environment variable ``SCCOUNTSDIFF_ALLOW_PICKLE=1``, for commands.

    Returns
    -------
    The model, for :func:`embed`.

    Examples
    --------
    >>> import numpy as np
    >>> from anndata import AnnData
    >>> from tempfile import TemporaryDirectory
    >>> cells = AnnData(np.random.default_rng(0).poisson(2, (40, 6)).astype("float32"))
    >>> with TemporaryDirectory() as folder:
    ...     train_embedder(cells, n_latent=3, max_epochs=1).save(folder, overwrite=True)
    ...     model = load_embedder(folder, cells.var_names, allow_pickle=True)
    >>> embed(cells.X, model).shape
    (40, 3)
    """
    from scvi.model import SCVI

    if not Path(path).is_dir():
        raise FileNotFoundError(f"path must be the folder of a saved scvi-tools model, found nothing at {str(path)!r}.")
    if not allow_pickle and os.environ.get("SCCOUNTSDIFF_ALLOW_PICKLE") != "1":
        raise ValueError(
            f"The model at {str(path)!r} is a pickle of scvi-tools, which can run any code when it is loaded. If you trust who "
            "made it, pass `allow_pickle=True`, or set the environment variable SCCOUNTSDIFF_ALLOW_PICKLE=1."
        )
    with global_seed(0), quiet():
        known = SCVI.prepare_query_anndata(None, str(path), return_reference_var_names=True)
        shared = genes.intersection(known)
        if shared.empty:
            raise ValueError(
                f"None of the {len(genes)} genes is known to the model at {str(path)!r}, which has names like {known[0]!r}."
            )
        if len(shared) < len(genes):
            logger.info("%d of %d genes are known to the model at %s.", len(shared), len(genes), path)
        probe = _query(sparse.csr_matrix((1, len(genes))), genes, SCVI.load_registry(str(path)))
        SCVI.prepare_query_anndata(probe, str(path))
        model = SCVI.load_query_data(probe, str(path))
    model.is_trained_ = True
    return model


def embed(counts: np.ndarray, model: SCVI, genes: pd.Index | None = None) -> np.ndarray:
    """Mean latent position of each cell, (cells, dimensions).

    Parameters
    ----------
    counts
        Counts (cells, genes), need not be integers.
    model
        From :func:`train_embedder` or :func:`load_embedder`.
    genes
        Names of the columns; by default the genes of the model, in its order.

    Returns
    -------
    The positions.

    Examples
    --------
    >>> import numpy as np
    >>> from anndata import AnnData
    >>> cells = AnnData(np.random.default_rng(0).poisson(2, (40, 6)).astype("float32"))
    >>> model = train_embedder(cells, n_latent=3, max_epochs=1)
    >>> truth, imputed = embed(cells.X, model), embed(cells.X * 0.5, model)
    >>> scfid(truth, imputed) > 0
    True
    """
    from scvi.model import SCVI

    cells = _query(counts, model.adata.var_names if genes is None else genes, model.registry)
    with quiet():
        SCVI.prepare_query_anndata(cells, model)
        return model.get_latent_representation(cells)


def _query(counts: np.ndarray | sparse.spmatrix, genes: pd.Index, registry: dict) -> AnnData:
    """Cells with all that the set-up of a model asks for: its layer, its batch and its covariates."""
    from scvi import REGISTRY_KEYS

    fields = registry["field_registries"]
    # Those given; models saved by older versions of scvi-tools lack some of the others.
    setup = {argument: value for argument, value in registry["setup_args"].items() if value is not None}
    obs = dict.fromkeys(setup.get("continuous_covariate_keys", ()), 0.0)
    if "size_factor_key" in setup:
        obs[setup["size_factor_key"]] = 1.0
    for argument, field in (("batch_key", REGISTRY_KEYS.BATCH_KEY), ("labels_key", REGISTRY_KEYS.LABELS_KEY)):
        if argument in setup:
            obs[setup[argument]] = fields[field]["state_registry"]["categorical_mapping"][0]
    for key in setup.get("categorical_covariate_keys", ()):
        obs[key] = fields[REGISTRY_KEYS.CAT_COVS_KEY]["state_registry"]["mappings"][key][0]
    counts = sparse.csr_matrix(counts, dtype=np.float32)
    names = pd.RangeIndex(counts.shape[0]).astype(str)
    layers = {setup["layer"]: counts} if "layer" in setup else {}
    return AnnData(counts, obs=pd.DataFrame(obs, index=names), var=pd.DataFrame(index=genes), layers=layers)
