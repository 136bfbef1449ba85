"""Saving and loading of models, as scvi-tools has them, without code in the files."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Self

from anndata import AnnData
from anndata.io import write_h5ad
from lightning.pytorch.utilities import rank_zero_only
from mudata import MuData, write_h5mu
from scvi.data import AnnDataManager

from sccountsdiff.compat import download, is_mudata_setup, model_name, setup_args, torch_device
from sccountsdiff.files import write_text
from sccountsdiff.io import read, size_of
from sccountsdiff.model.base import CountsDiffBase, refuse_mps, refuse_other_types
from sccountsdiff.model.card import MADE_BY, model_card
from sccountsdiff.model.model_files import (
    DataWriter,
    SavedModel,
    check_prefix,
    description,
    only_leftovers,
    read_files,
    write_files,
)
from sccountsdiff.model.pickled import read_pickled


class SavingMixin(CountsDiffBase):
    """Saving and loading, as scvi-tools has them, without code in the files."""

    def save(
        self,
        dir_path: str | Path,
        prefix: str | None = None,
        overwrite: bool = False,
        save_anndata: bool = False,
        save_kwargs: dict | None = None,
        legacy_mudata_format: bool = False,
        datamodule: None = None,
        **anndata_write_kwargs,
    ) -> None:
        """Save the model: weights as safetensors, settings and history as JSON, and a model card.

        A model that is there already is replaced at once, when the new one is complete: if saving fails or is killed, it
        stays as it was.

        Parameters
        ----------
        dir_path
            Folder; made if it does not exist.
        prefix
            Of the names of all files, for several models in one folder.
        overwrite
            Replace a model that is there, with its data. Other files in the folder stay.
        save_anndata
            Save the data too.
        save_kwargs, legacy_mudata_format, datamodule
            Of scvi-tools; nothing of that kind is saved.
        **anndata_write_kwargs
            Passed to :meth:`anndata.AnnData.write_h5ad` or :meth:`mudata.MuData.write`.

        Examples
        --------
        >>> model.save("my_model", overwrite=True)
        >>> from pathlib import Path
        >>> sorted(path.suffix for path in Path("my_model").iterdir())
        ['.json', '.md', '.safetensors']
        """
        if getattr(rank_zero_only, "rank", 0) != 0:
            return  # of several processes that train together, the first saves
        if save_kwargs or datamodule is not None:
            raise TypeError("`save_kwargs` and `datamodule` must be None: weights are not saved with torch.save.")
        if save_anndata and self.adata is None:
            raise ValueError("`save_anndata=True`, but the model was loaded without data.")
        folder, prefix = Path(dir_path), check_prefix(prefix)
        if folder.exists() and not overwrite and not only_leftovers(folder, prefix):
            raise ValueError(f"{dir_path} already exists: choose another folder, or pass `overwrite=True`.")
        attributes = {name: value for name, value in self._get_user_attributes() if name.endswith("_")}
        if not self.module.is_frozen:  # any more
            attributes["frozen_categories_"] = None
        data = self._data_writer(anndata_write_kwargs) if save_anndata else None
        write_files(folder, prefix, type(self).__name__, attributes, self.module.state_dict(), data)
        card = folder / f"{prefix}README.md"
        if not card.exists() or MADE_BY in card.read_text(encoding="utf-8", errors="replace"):
            write_text(card, model_card(self, prefix))

    def _data_writer(self, options: dict[str, Any]) -> DataWriter:
        # The functions: the methods of data in a file would have it read on from the copy.
        is_mudata = isinstance(self.adata, MuData)
        stem, suffix, write = ("mdata", ".h5mu", write_h5mu) if is_mudata else ("adata", ".h5ad", write_h5ad)
        n_bytes = 0 if "compression" in options else size_of(self.adata)
        return DataWriter(stem, suffix, lambda path: write(path, self.adata, **options), n_bytes)

    @classmethod
    def load(
        cls,
        dir_path: str | Path,
        adata: AnnData | MuData | Literal[False] | None = None,
        accelerator: str = "auto",
        device: int | str = "auto",
        prefix: str | None = None,
        backup_url: str | None = None,
        datamodule: None = None,
        allowed_classes_names_list: list[str] | None = None,
        *,
        allow_pickle: bool = False,
    ) -> Self:
        """Load a saved model.

        Parameters
        ----------
        dir_path
            Folder that the model was saved to.
        adata
            Data for the model; ``None``: the data saved with it; ``False``: none.
        accelerator, device
            Where to put the model; by default on a GPU where there is one.
        prefix
            Of the names of the files.
        backup_url
            Where to fetch a ``model.pt`` from that is not in the folder.
        datamodule
            Of scvi-tools; must be ``None``.
        allowed_classes_names_list
            Names of other classes that the model may have been saved from.
        allow_pickle
            Also load a ``model.pt``, as scvi-tools writes it. Such a file can run any code when it is loaded: only if you
            trust who made it.

        Returns
        -------
        The model.

        Examples
        --------
        >>> model.save("my_model", overwrite=True)
        >>> import sccountsdiff
        >>> sccountsdiff.CountsDiffImputer.load("my_model", adata=False).is_trained
        True
        """
        if datamodule is not None:
            raise TypeError("`datamodule` must be None: the model trains on the data that it is loaded with.")
        refuse_other_types(None if adata is False else adata)
        refuse_mps(accelerator)
        where = torch_device(accelerator, device)
        saved = read_model(dir_path, prefix, allow_pickle=allow_pickle, backup_url=backup_url)
        registry = saved.attributes.pop("registry_")
        if model_name(registry) not in (None, cls.__name__, *(allowed_classes_names_list or [])):
            raise ValueError(f"{dir_path} holds a model of the class {model_name(registry)}, not {cls.__name__}.")
        if adata is None and saved.data is not None:
            adata = read(saved.data)
        elif adata is None:
            warnings.warn(f"No data was saved with the model in {dir_path}: it has none.", stacklevel=2)
        adata = None if adata is False else adata
        if adata is not None:
            # The same way in for saved and for new data: it is checked against what the model knows.
            set_up: Callable = cls.setup_mudata if is_mudata_setup(registry) else cls.setup_anndata
            set_up(adata, source_registry=registry, **setup_args(registry))
        init = saved.attributes.pop("init_params_")
        try:
            model = cls(adata, registry=registry, **init["non_kwargs"], **init["kwargs"].get("backbone_kwargs", {}))
        except (AttributeError, LookupError, TypeError) as error:  # of settings that no model can have
            reason = error.args[0] if error.args else type(error).__name__
            raise ValueError(f"{dir_path} cannot be read as a model: {reason}") from error
        for name, value in saved.attributes.items():
            setattr(model, name, value)
        try:
            model.module.load_state_dict(saved.weights)
        except RuntimeError as error:
            first = str(error).splitlines()[1:2] or [str(error)]
            raise ValueError(f"The weights in {dir_path} are not those of such a model: {first[0].strip()}") from None
        if model.frozen_categories_ is not None:
            model._freeze(model.frozen_categories_)
        model.to_device(where)
        model.module.eval()
        return model

    @staticmethod
    def load_registry(dir_path: str | Path, prefix: str | None = None) -> dict:
        """What a saved model knows of the data that it was set up with.

        Parameters
        ----------
        dir_path
            Folder that the model was saved to.
        prefix
            Of the names of the files.

        Returns
        -------
        The registry of scvi-tools.

        Examples
        --------
        >>> model.save("my_model", overwrite=True)
        >>> model.load_registry("my_model")["setup_args"]["zeros"]
        'observed'
        """
        return read_model(dir_path, prefix).attributes["registry_"]

    @staticmethod
    def view_setup_args(dir_path: str | Path, prefix: str | None = None) -> None:
        """Print the arguments with which the data of a saved model was set up.

        Parameters
        ----------
        dir_path
            Folder that the model was saved to.
        prefix
            Of the names of the files.

        Examples
        --------
        >>> model.save("my_model", overwrite=True)
        >>> model.view_setup_args("my_model")  # doctest: +ELLIPSIS
        <BLANKLINE>
        ...
        """
        AnnDataManager.view_setup_method_args(SavingMixin.load_registry(dir_path, prefix))


def read_model(
    dir_path: str | Path, prefix: str | None = None, *, allow_pickle: bool = False, backup_url: str | None = None
) -> SavedModel:
    """Read a saved model, checked as far as that can be done without making one.

    Parameters
    ----------
    dir_path
        Folder that the model was saved to.
    prefix
        Of the names of the files.
    allow_pickle
        Also read a ``model.pt``, which can run code.
    backup_url
        Where to fetch a ``model.pt`` from that is not in the folder.

    Returns
    -------
    Attributes (settings, registry, history), weights, and where the data is, if any was saved.

    Examples
    --------
    >>> model.save("my_model", overwrite=True)
    >>> read_model("my_model").attributes["is_trained_"]
    True
    """
    folder, prefix = Path(dir_path), check_prefix(prefix)
    described, pickled = description(folder, prefix), folder / f"{prefix}model.pt"
    if described.is_file():
        return read_files(described)
    if allow_pickle and backup_url is not None:
        download(backup_url, str(folder), pickled.name)
    if not pickled.is_file():
        what = f"it holds no {described.name}" if folder.is_dir() else "there is no such folder"
        raise FileNotFoundError(f"No saved model in {str(dir_path)!r}: {what}.")
    if not allow_pickle:
        raise ValueError(
            f"{pickled} can run any code when it is loaded. If you trust who made it, load it with `allow_pickle=True`, and "
            "save it again: what is saved now holds nothing that runs."
        )
    return read_pickled(pickled)
