"""Models as scvi-tools saves them: pickles, which can run any code when they are loaded."""

from __future__ import annotations

import pickle
from pathlib import Path

import torch

from sccountsdiff.compat import is_mudata_setup
from sccountsdiff.model.model_files import SavedModel, check_attributes


def read_pickled(path: Path) -> SavedModel:
    """Read a ``model.pt``. Whatever is in it is run.

    Parameters
    ----------
    path
        The file; data that scvi-tools has saved with it is beside it.

    Returns
    -------
    Attributes, weights, and where the data is, if any was saved.
    """
    try:
        content = torch.load(path, map_location="cpu", weights_only=False)
    except (AttributeError, ImportError) as error:
        raise ValueError(
            f"{path} needs a class that is not defined here: {error}. Import or define it first."
        ) from None
    except (EOFError, KeyError, OSError, RuntimeError, ValueError, pickle.UnpicklingError) as error:
        raise ValueError(f"{path} is damaged, or not a saved model: {error}.") from None
    try:
        attributes, weights = dict(content["attr_dict"]), dict(content["model_state_dict"])
        weights.pop("pyro_param_store", None)
        check_attributes(attributes)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not a model of sccountsdiff: {error}.") from None
    name = "mdata.h5mu" if is_mudata_setup(attributes["registry_"]) else "adata.h5ad"
    data = path.with_name(path.name.removesuffix("model.pt") + name)
    return SavedModel(attributes, weights, data if data.is_file() else None)
