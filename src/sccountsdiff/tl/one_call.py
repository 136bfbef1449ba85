"""Training and writing in one call: thin wrappers of :class:`~sccountsdiff.CountsDiffImputer`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from anndata import AnnData

from sccountsdiff import __version__
from sccountsdiff.checks import check_keywords, check_number, keywords_of, one_of, whole_number
from sccountsdiff.compat import layer_names, setup_args
from sccountsdiff.data.counts import default_layer
from sccountsdiff.model import CountsDiffImputer
from sccountsdiff.model.results import check_can_write, check_key, layers_read, quantile_suffixes
from sccountsdiff.model.sites import named_sites
from sccountsdiff.seeding import global_seed

_OF_THE_CALL = (
    "self", "adata", "indices", "key_added", "layer", "seed", "return_mean", "unseen_to_null", "on_move", "out",
)  # fmt: skip


def impute(
    adata: AnnData,
    *,
    layer: str | None = None,
    batch_key: str | None = None,
    labels_key: str | None = None,
    categorical_covariate_keys: Sequence[str] | None = None,
    continuous_covariate_keys: Sequence[str] | None = None,
    size_factor_key: str | None = None,
    mask_layer: str | None = None,
    zeros: Literal["observed", "missing"] = "observed",
    key_added: str = "imputed",
    max_epochs: int | None = None,
    random_state: int = 0,
    model_kwargs: Mapping[str, Any] | None = None,
    train_kwargs: Mapping[str, Any] | None = None,
    copy: bool = False,
    **impute_kwargs,
) -> AnnData | None:
    """Train a model on the counts and write imputed ones, in one call.

    For anything more, as saving the model or imputing other cells, use :class:`~sccountsdiff.CountsDiffImputer` itself.

    Parameters
    ----------
    adata
        AnnData with raw counts, in memory.
    layer
        Layer with the counts, ``"X"`` for ``adata.X``. Default: ``"counts"`` if there is such a layer, else ``X``.
    batch_key, labels_key, categorical_covariate_keys, continuous_covariate_keys, size_factor_key, mask_layer, zeros
        As in :meth:`CountsDiffImputer.setup_anndata() <sccountsdiff.CountsDiffImputer.setup_anndata>`.
    key_added
        Name of the layer that is written.
    max_epochs
        Passes over the training cells; default: by their number.
    random_state
        Seed of training and draws. Seeds that were set before stay as they are.
    model_kwargs, train_kwargs
        Further arguments of :class:`~sccountsdiff.CountsDiffImputer` and of its ``train``.
    copy
        Leave ``adata`` as it is and return a copy with the results.
    **impute_kwargs
        Further arguments of :meth:`CountsDiffImputer.impute() <sccountsdiff.CountsDiffImputer.impute>`, such as
        ``n_samples``.

    Returns
    -------
    Nothing, or the copy.

    Notes
    -----
    Writes ``layers[key_added]``, ``layers[key_added + "_sd"]`` unless a single draw is asked for, and
    ``uns["sccountsdiff"][key_added]`` with the settings of training and sampling.

    Examples
    --------
    >>> import sccountsdiff
    >>> cells = sccountsdiff.datasets.pbmc68k()[:60, :25].copy()
    >>> quiet = {"enable_progress_bar": False}
    >>> sccountsdiff.tl.impute(cells, max_epochs=1, n_samples=2, n_folds=2, silent=True, train_kwargs=quiet)
    >>> sorted(cells.layers)
    ['imputed', 'imputed_sd']
    """
    allowed = [name for name in keywords_of(CountsDiffImputer.impute) or () if name not in _OF_THE_CALL]
    check_keywords("tl.impute()", impute_kwargs, allowed)
    impute_kwargs = {name: _listed(value) for name, value in impute_kwargs.items()}  # which are read more than once
    adata = adata.copy() if copy else adata
    setup = {
        "layer": layer,
        "batch_key": batch_key,
        "labels_key": labels_key,
        "categorical_covariate_keys": categorical_covariate_keys,
        "continuous_covariate_keys": continuous_covariate_keys,
        "size_factor_key": size_factor_key,
        "mask_layer": mask_layer,
        "zeros": zeros,
    }
    training = (max_epochs, random_state, model_kwargs, train_kwargs)

    def check(model: CountsDiffImputer) -> None:
        _, _, quantiles, _ = model._check_call(**impute_kwargs)
        sites, suffixes = impute_kwargs.get("sites"), ["", "_sd", *quantile_suffixes(quantiles)]
        check_key(key_added, suffixes, layers_read(setup_args(model.registry_), sites))
        check_can_write(adata, key_added, suffixes)
        if sites is not None:
            named_sites(sites, adata, model._source())

    with _trained(adata, setup, key_added, ["", "_sd"], *training, check) as model:
        model.impute(adata, key_added=key_added, seed=random_state, **impute_kwargs)
        adata.uns["sccountsdiff"][key_added] |= _note(model, random_state)
    return adata if copy else None


def denoise(
    adata: AnnData,
    *,
    layer: str | None = None,
    batch_key: str | None = None,
    labels_key: str | None = None,
    categorical_covariate_keys: Sequence[str] | None = None,
    continuous_covariate_keys: Sequence[str] | None = None,
    size_factor_key: str | None = None,
    mask_layer: str | None = None,
    key_added: str = "denoised",
    depth: float = 2.0,
    final: Literal["mean", "log_mean"] = "mean",
    max_epochs: int | None = None,
    random_state: int = 0,
    model_kwargs: Mapping[str, Any] | None = None,
    train_kwargs: Mapping[str, Any] | None = None,
    silent: bool = False,
    copy: bool = False,
) -> AnnData | None:
    """Train a model on the counts and write those expected of deeper sequencing, in one call.

    Parameters
    ----------
    adata
        AnnData with raw counts, in memory.
    layer
        Layer with the counts, ``"X"`` for ``adata.X``. Default: ``"counts"`` if there is such a layer, else ``X``.
    batch_key, labels_key, categorical_covariate_keys, continuous_covariate_keys, size_factor_key, mask_layer
        As in :meth:`CountsDiffImputer.setup_anndata() <sccountsdiff.CountsDiffImputer.setup_anndata>`.
    key_added
        Name of the layer that is written.
    depth, final
        As in :meth:`CountsDiffImputer.denoise() <sccountsdiff.CountsDiffImputer.denoise>`.
    max_epochs, random_state, model_kwargs, train_kwargs, copy
        As in :func:`impute`.
    silent
        Show no progress bar of denoising.

    Returns
    -------
    Nothing, or the copy.

    Notes
    -----
    Writes ``layers[key_added]`` and ``uns["sccountsdiff"][key_added]`` with the settings.

    Examples
    --------
    >>> import sccountsdiff
    >>> cells = sccountsdiff.datasets.pbmc68k()[:60, :25].copy()
    >>> sccountsdiff.tl.denoise(cells, max_epochs=1, silent=True, train_kwargs={"enable_progress_bar": False})
    >>> bool((cells.layers["denoised"] >= cells.X.toarray()).all())
    True
    """
    adata = adata.copy() if copy else adata
    setup = {
        "layer": layer,
        "batch_key": batch_key,
        "labels_key": labels_key,
        "categorical_covariate_keys": categorical_covariate_keys,
        "continuous_covariate_keys": continuous_covariate_keys,
        "size_factor_key": size_factor_key,
        "mask_layer": mask_layer,
    }
    check_number("depth", depth, above=1)
    one_of("final", final, ("mean", "log_mean"))
    with _trained(adata, setup, key_added, [""], max_epochs, random_state, model_kwargs, train_kwargs) as model:
        adata.layers[key_added] = model.denoise(adata, depth=depth, final=final, silent=silent)
        note = {"depth": depth, "final": final, "layers": [key_added], "version": __version__}
        args = setup_args(model.registry_)
        note |= {name: args[name] for name in ("layer", "mask_layer") if args[name] is not None}
        notes = adata.uns.get("sccountsdiff", {})
        adata.uns["sccountsdiff"] = {**notes, key_added: note | _note(model, random_state)}
    return adata if copy else None


@contextmanager
def _trained(
    adata: AnnData,
    setup: dict[str, Any],
    key_added: str,
    suffixes: list[str],
    max_epochs: int | None,
    random_state: int,
    model_kwargs: Mapping[str, Any] | None,
    train_kwargs: Mapping[str, Any] | None,
    check: Callable[[CountsDiffImputer], object] = lambda model: None,
) -> Iterator[CountsDiffImputer]:
    """A model of the data, trained once ``check`` has nothing against it; global seeds are as they were once it has been used."""
    if not isinstance(adata, AnnData):
        raise TypeError(f"`adata` must be an AnnData, not {type(adata).__name__}.")
    if adata.isbacked:
        raise ValueError(
            "`adata` is in a file: pass `adata.to_memory()`, or use `CountsDiffImputer`, which reads files."
        )
    layer = default_layer(adata) if setup["layer"] is None else setup["layer"]
    if not isinstance(key_added, str) or key_added in (layer, setup["mask_layer"]):
        raise ValueError(
            f"`key_added` must be the name of a layer other than that of counts and mask, not {key_added!r}."
        )
    check_key(key_added, suffixes, {})
    check_can_write(adata, key_added, suffixes)  # before training, which would be lost
    with global_seed(whole_number("random_state", random_state, least=0)):
        # The set-up leaves marks, which are not for the user's data; the counts themselves are shared.
        cells = AnnData(
            adata.X,
            obs=adata.obs.copy(),
            var=adata.var.copy(),
            layers={name: adata.layers[name] for name in layer_names(adata)},
        )
        CountsDiffImputer.setup_anndata(cells, **setup | {"layer": layer})
        model = CountsDiffImputer(cells, **(model_kwargs or {}))
        check(model)
        model.train(max_epochs, **(train_kwargs or {}))
        yield model


def _listed(value: Any) -> Any:
    """Iterators as lists, in a dict too; all else as it is."""
    if isinstance(value, Mapping):
        return {name: _listed(one) for name, one in value.items()}
    return list(value) if isinstance(value, Iterator) else value


def _note(model: CountsDiffImputer, random_state: int) -> dict[str, Any]:
    """What is remembered of a training."""
    covariates = [*model.categories, *model.continuous_keys]
    return {"random_state": random_state, "n_epochs": len(model.history["train_loss"]), "covariates": covariates}
