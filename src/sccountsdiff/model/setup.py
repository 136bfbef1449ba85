"""Set-up: where in the data counts, mask and covariates are, and whether a model can be trained on them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Literal

import numpy as np
import scipy.sparse as sp
from anndata import AnnData
from mudata import MuData
from scvi import REGISTRY_KEYS
from scvi.data import AnnDataManager, fields

from sccountsdiff.checks import one_of
from sccountsdiff.compat import field_state, is_mudata_setup, setup_args
from sccountsdiff.data.counts import get_matrix
from sccountsdiff.data.covariates import check_categories, check_covariates, encode
from sccountsdiff.data.messages import matrix_name
from sccountsdiff.data.missing import OBSERVED_KEY
from sccountsdiff.data.modalities import Layers, layers_of
from sccountsdiff.data.reading import DaskMatrix, Matrix, is_csc
from sccountsdiff.data.source import CellTables, find_cells, match_genes, open_counts
from sccountsdiff.model.base import CountsDiffBase, check_data
from sccountsdiff.model.fields import DaskManager, JoinedField, JoinedManager, known_features

logger = logging.getLogger("sccountsdiff")

# scvi-tools looks at 20 entries and only warns: every entry is checked here instead.
_UNCHECKED = {"is_count_data": False, "correct_data_format": False}


class SetupMixin(CountsDiffBase):
    """Set-up of AnnData and MuData."""

    @classmethod
    def setup_anndata(
        cls,
        adata: AnnData,
        layer: str | None = None,
        batch_key: str | None = None,
        labels_key: str | None = None,
        categorical_covariate_keys: Sequence[str] | None = None,
        continuous_covariate_keys: Sequence[str] | None = None,
        size_factor_key: str | None = None,
        mask_layer: str | None = None,
        zeros: Literal["observed", "missing"] = "observed",
        **kwargs,
    ) -> None:
        """Say where the counts and the covariates are; every entry of the counts is checked.

        They are read in full only here. If all of them are changed later, as by normalising in place, that is noticed;
        single entries that are changed are noticed when their cells are imputed, not in training.

        Parameters
        ----------
        adata
            AnnData with raw counts, in memory or backed. Counts and mask that are CSC in memory are stored as CSR.
        layer
            Layer with the counts; ``None`` or ``"X"``: ``X``. NaN means missing.
        batch_key, labels_key, categorical_covariate_keys
            Columns of ``obs`` to condition on.
        continuous_covariate_keys
            Numeric columns of ``obs`` to condition on.
        size_factor_key
            Column of ``obs`` with a size factor, such as the molecules of all genes if the data has only some of them, whose
            log is one of the continuous covariates. Default: what is seen of a cell says how deep it is.
        mask_layer
            Boolean layer, True = observed.
        zeros
            ``"observed"``: a zero is a count. ``"missing"``: zeros of genes that the cell's type (``labels_key``)
            expresses are missing, as in the paper.
        **kwargs
            For ``load``.

        Examples
        --------
        >>> import sccountsdiff
        >>> cells = sccountsdiff.datasets.pbmc68k()
        >>> sccountsdiff.CountsDiffImputer.setup_anndata(cells, categorical_covariate_keys=["cell_type"])
        """
        if not isinstance(adata, AnnData):
            other = ": use `setup_mudata`" if isinstance(adata, MuData) else ""
            raise TypeError(f"`adata` must be an AnnData, not {type(adata).__name__}{other}.")
        layer = _none_for_x(layer, [adata])
        setup_method_args = cls._get_setup_method_args(**locals())
        makers = (
            partial(fields.LayerField, **_UNCHECKED),
            fields.CategoricalJointObsField,
            fields.NumericalJointObsField,
        )
        cls._set_up(adata, find_cells(adata, None, layer, mask_layer), setup_method_args, makers, kwargs)

    @classmethod
    def setup_mudata(
        cls,
        mdata: MuData,
        layer: str | dict[str, str | None] | None = None,
        batch_key: str | None = None,
        labels_key: str | None = None,
        categorical_covariate_keys: Sequence[str] | None = None,
        continuous_covariate_keys: Sequence[str] | None = None,
        size_factor_key: str | None = None,
        mask_layer: str | dict[str, str | None] | None = None,
        zeros: Literal["observed", "missing"] = "observed",
        modalities: dict[str, str | Sequence[str]] | None = None,
        **kwargs,
    ) -> None:
        """Say which modalities hold the counts; otherwise as :meth:`setup_anndata`.

        Counts of several modalities, such as RNA and proteins, go into one model, in which each has a depth of its own. A
        cell that a modality does not have lacks all of its features, and training hides whole modalities at times: so
        one can be imputed from another. See :doc:`/user_guide/modalities`.

        Parameters
        ----------
        mdata
            MuData with raw counts in one modality or more. Several are read in memory, and copied there.
        layer, mask_layer
            As in :meth:`setup_anndata`; of several modalities, one name for all or a dict with that of each.
        batch_key, labels_key, categorical_covariate_keys, continuous_covariate_keys, size_factor_key, zeros
            As in :meth:`setup_anndata`.
        modalities
            Modality for ``"layer"`` (required; also that of the mask), or a list of them, and, if they are not in
            ``mdata.obs``, modality for ``"categorical_covariate_keys"`` (with batch and labels) and
            ``"continuous_covariate_keys"`` (with the size factor). Where two of several modalities have features of the same name, the model
            calls all features ``"modality:name"``.
        **kwargs
            For ``load``.

        Examples
        --------
        >>> import mudata, sccountsdiff
        >>> cells = sccountsdiff.datasets.pbmc68k()
        >>> mdata = mudata.MuData({"rna": cells})
        >>> sccountsdiff.CountsDiffImputer.setup_mudata(mdata, modalities={"layer": "rna"})

        Two modalities, of which the second is missing in some cells:

        >>> mdata = mudata.MuData({"rna": cells[:, 10:].copy(), "panel": cells[:300, :10].copy()})
        >>> sccountsdiff.CountsDiffImputer.setup_mudata(mdata, modalities={"layer": ["rna", "panel"]})
        """
        modalities = dict(modalities or {})
        if not isinstance(mdata, MuData):
            other = ": use `setup_anndata`" if isinstance(mdata, AnnData) else ""
            raise TypeError(f"`mdata` must be a MuData, not {type(mdata).__name__}{other}.")
        if isinstance(layer, dict):
            layer = {
                name: _none_for_x(of_part, [mdata.mod[name]] if name in mdata.mod else [])
                for name, of_part in layer.items()
            }
        else:
            layer = _none_for_x(layer, mdata.mod.values())
        setup_method_args = cls._get_setup_method_args(**locals())
        known = ("layer", "categorical_covariate_keys", "continuous_covariate_keys")
        if not set(modalities) <= set(known):
            raise ValueError(
                f"`modalities` may name {', '.join(known)}, not {', '.join(set(modalities) - set(known))}."
            )
        known_to_model = known_features(_state_of_counts(kwargs.get("source_registry")))
        if isinstance(modalities.get("layer"), list | tuple):
            _check_modalities(cls.__name__, mdata, modalities["layer"], layer, mask_layer)
        cells = find_cells(mdata, modalities, layer, mask_layer, known_to_model)
        if cells.adata.isbacked and not mdata.isbacked:
            raise ValueError(
                f"Modality {modalities['layer']!r} is in a file, but `mdata` is not: open all of it with "
                "mudata.read_h5mu(..., backed=...), or load the modality by its .to_memory()."
            )
        of_layer, of_categorical, of_continuous = (modalities.get(argument) for argument in known)
        joined = cells.joined
        of_counts = partial(fields.MuDataLayerField, mod_key=of_layer, mod_required=True, **_UNCHECKED)
        makers = (
            of_counts if joined is None else lambda key, _: JoinedField(key, joined),
            partial(fields.MuDataCategoricalJointObsField, mod_key=of_categorical),
            partial(fields.MuDataNumericalJointObsField, mod_key=of_continuous),
        )
        cls._set_up(mdata, cells, setup_method_args, makers, kwargs)

    @classmethod
    def _set_up(
        cls,
        data: AnnData | MuData,
        cells: CellTables,
        setup_method_args: dict,
        makers: tuple[Callable, Callable, Callable],
        load_kwargs: dict,
    ) -> None:
        """Check the data and register its fields, which ``makers`` make: layer, categorical and continuous ones."""
        args = setup_args(setup_method_args)
        source_registry = load_kwargs.get("source_registry")
        _refuse_views(data)
        _check_keys(args)
        categorical = _merge_keys(args["batch_key"], args["labels_key"], args["categorical_covariate_keys"])
        size_factor_key = args.get("size_factor_key")  # not there in older models
        continuous = _merge_keys(args["continuous_covariate_keys"], size_factor_key)
        _check_zeros(args["zeros"], args["labels_key"])
        if cells.joined is None:
            _check_layer_names(args)
        for argument in ("batch_key", "labels_key", "categorical_covariate_keys"):
            check_covariates(cells.categorical_obs, _merge_keys(args[argument]), argument=argument)
            if source_registry is None:
                check_categories(cells.categorical_obs, _merge_keys(args[argument]), argument)
        for argument in ("continuous_covariate_keys", "size_factor_key"):
            keys = _merge_keys(args.get(argument))
            check_covariates(
                cells.continuous_obs, keys, continuous=True, size_factor_key=size_factor_key, argument=argument
            )
        # Of a model that is loaded, nothing can be passed to the set-up.
        method = "setup_mudata" if is_mudata_setup(setup_method_args) else "setup_anndata"
        setup = f"{cls.__name__}.{method}" if source_registry is None else None
        named_by = None if setup is None else "layer"
        matrix = open_counts(cells.adata, cells.layer, cells.mask_layer, setup, named_by, cells.joined)
        checked_data = check_data(matrix, cells, args, may_lack_genes=source_registry is not None)
        _check_genes(cells.adata, source_registry)

        make_layer, make_categorical, make_continuous = makers
        data_fields = [
            make_layer(REGISTRY_KEYS.X_KEY, cells.layer),
            make_categorical(REGISTRY_KEYS.CAT_COVS_KEY, categorical),
            make_continuous(REGISTRY_KEYS.CONT_COVS_KEY, continuous),
        ]
        if matrix.mask is not None:
            data_fields.append(make_layer(OBSERVED_KEY, cells.mask_layer))
        kind = DaskManager if isinstance(matrix.counts, DaskMatrix) else AnnDataManager
        kind = kind if cells.joined is None else partial(JoinedManager, cells.joined)
        manager = kind(fields=data_fields, setup_method_args=setup_method_args)
        manager.register_fields(data, **load_kwargs)
        if source_registry is not None and categorical:
            # To pandas, the same categories in another order are the same type: scvi-tools may take codes of that order.
            known = field_state(manager.registry, REGISTRY_KEYS.CAT_COVS_KEY)["mappings"]
            codes = manager.get_from_registry(REGISTRY_KEYS.CAT_COVS_KEY)
            codes[categorical] = encode(cells.categorical_obs, {key: known[key] for key in categorical})
        manager.checked_data = checked_data
        cls.register_manager(manager)
        _store_by_rows(cells.adata, cells.layer, matrix.counts)
        if cells.mask_layer is not None:
            _store_by_rows(cells.adata, cells.mask_layer, matrix.mask)

    def _check_unchanged(self) -> None:
        """Refuse data whose genes or covariates are not those of the set-up, which is what training reads."""
        cells = self._cells(None)
        changed = [] if np.array_equal(cells.adata.var_names, self.gene_names) else ["the genes"]
        noted, tables = {}, {}
        for key, known in self.categories.items():
            codes = self.adata_manager.get_from_registry(REGISTRY_KEYS.CAT_COVS_KEY)[key]
            noted[key], tables[key] = known[codes.to_numpy()], cells.categorical_obs
        for key in self.continuous_keys:
            values = self.adata_manager.get_from_registry(REGISTRY_KEYS.CONT_COVS_KEY)[key]
            noted[key], tables[key] = values.to_numpy(), cells.continuous_obs
        for key, values in noted.items():
            if key not in tables[key] or not np.array_equal(tables[key][key].astype(values.dtype), values):
                changed.append(f"obs[{key!r}]")
        if changed:
            method = "setup_mudata" if is_mudata_setup(self.registry_) else "setup_anndata"
            raise ValueError(
                f"{', '.join(changed)} of adata changed after the set-up: call `CountsDiffImputer.{method}` again, and "
                "make a new model."
            )


def _merge_keys(*keys: str | Sequence[str] | None) -> list[str]:
    """All covariate keys, each once, in the order given."""
    merged = []
    for key in keys:
        merged += [key] if isinstance(key, str) else list(key or [])
    return list(dict.fromkeys(merged))


def _refuse_views(data: AnnData | MuData) -> None:
    if data.is_view:
        copy = "adata.to_memory()" if data.isbacked else "adata.copy()"
        raise ValueError(f"`adata` is a view of other data, to which nothing can be added: set up `adata = {copy}`.")


def _check_keys(args: dict) -> None:
    """Refuse covariates that are not named by text, as columns of data in files are."""
    for argument in ("batch_key", "labels_key", "size_factor_key"):
        if not isinstance(args.get(argument), str | None):
            raise TypeError(f"`{argument}` must be the name of a column of obs or None, not {args[argument]!r}.")
    for argument in ("categorical_covariate_keys", "continuous_covariate_keys"):
        keys = args[argument]
        if not isinstance(keys, str | None) and not (
            isinstance(keys, Iterable) and all(isinstance(key, str) for key in keys)
        ):
            raise TypeError(f"`{argument}` must be a list of columns of obs, whose names are text, not {keys!r}.")


def _check_zeros(zeros: str, labels_key: str | None) -> None:
    one_of("zeros", zeros, ("observed", "missing"))
    if zeros == "missing" and labels_key is None:
        raise ValueError("`zeros='missing'` needs `labels_key`: which zeros are missing depends on the cell's type.")


def _check_layer_names(args: dict) -> None:
    for argument in ("layer", "mask_layer"):
        if not isinstance(args[argument], str | None):
            raise TypeError(
                f"`{argument}` must be the name of a layer or None, not {type(args[argument]).__name__}: put the "
                "matrix into adata.layers and pass its name."
            )


def _state_of_counts(registry: dict | None) -> dict:
    return {} if registry is None else field_state(registry, REGISTRY_KEYS.X_KEY)


def _none_for_x(layer: str | None, parts: Iterable[AnnData]) -> str | None:
    """The layer, but ``None`` for ``"X"``, unless a part has a layer of that name."""
    is_x = isinstance(layer, str) and layer == "X" and not any(layer in part.layers for part in parts)
    return None if is_x else layer


def _check_modalities(model: str, mdata: MuData, names: Sequence[str], layer: Layers, mask_layer: Layers) -> None:
    """Refuse what is no count or no mask, by the names that each modality has for them."""
    if not names or len(set(names)) < len(names):
        raise ValueError(f"modalities['layer'] must name each modality with counts once, not {list(names)}.")
    layers, mask_layers = layers_of("layer", layer, names), layers_of("mask_layer", mask_layer, names)
    for name in names:
        if name not in mdata.mod:
            continue  # an error unless the model knows its features
        try:
            _check_layer_names({"layer": layers[name], "mask_layer": mask_layers[name]})
            open_counts(mdata.mod[name], layers[name], mask_layers[name], f"{model}.setup_mudata", "layer").check()
        except (KeyError, TypeError, ValueError) as error:
            raise type(error)(f"Modality {name!r}: {error.args[0]}") from None


def _check_genes(adata: AnnData, source_registry: dict | None) -> None:
    """Refuse names that are not unique and, of data that a model is loaded with, other genes than the model's."""
    genes = adata.var_names
    if source_registry is not None:
        genes = field_state(source_registry, REGISTRY_KEYS.X_KEY)["column_names"]
    if not np.array_equal(match_genes(adata.var_names, genes), np.arange(adata.n_vars)):
        raise ValueError(
            "adata has other genes than the model, or in another order. Call `CountsDiffImputer.prepare_query_anndata(adata, "
            "reference_model)` first; or load the model with adata=False and pass the data to `impute` as it is."
        )


def _store_by_rows(adata: AnnData, layer: str | None, by_row: Matrix) -> None:
    """Replace a CSC matrix in memory by its CSR form: training reads rows over and over again."""
    matrix = get_matrix(adata, layer)
    if not (sp.issparse(matrix) and is_csc(matrix)):
        return
    logger.info("Converting %s to CSR.", matrix_name(layer))
    if layer is None:
        adata.X = by_row
    else:
        adata.layers[layer] = by_row
