"""The model card: what a model was trained on, how well it does on cells that were held out, and how to use it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from sccountsdiff import __version__
from sccountsdiff.compat import is_mudata_setup, setup_args

if TYPE_CHECKING:
    from sccountsdiff.model.base import CountsDiffBase

MADE_BY = "<!-- made by sccountsdiff; save() replaces this file unless this line is removed -->"


def model_card(model: CountsDiffBase, prefix: str = "") -> str:
    """A README of a model in Markdown, with the header that the Hugging Face hub reads.

    Parameters
    ----------
    model
        The model.
    prefix
        Of the names of its files.

    Returns
    -------
    The text.

    Examples
    --------
    >>> print(model_card(model).split("---")[1])
    <BLANKLINE>
    library_name: sccountsdiff
    tags: [single-cell, scverse, anndata, imputation, diffusion]
    <BLANKLINE>
    """
    args = {name: value for name, value in setup_args(model.registry_).items() if value not in (None, [], {})}
    facts = {
        "genes": f"{len(model.gene_names):,} ({_some(model.gene_names)})",
        "categorical covariates": "; ".join(
            f"{_code(key)}: {len(known)} categories ({_some(known)})" for key, known in model.categories.items()
        ),
        "continuous covariates": ", ".join(map(_code, model.continuous_keys)),
        "set-up": ", ".join(f"{name}={_code(value)}" for name, value in args.items()),
        "model": ", ".join(f"{name}={_code(value)}" for name, value in _settings(model).items()) or "default settings",
        "saved with": f"sccountsdiff {__version__}",
    }
    load = f'"folder", adata=False{f", prefix={prefix!r}" if prefix else ""}'
    is_mudata = is_mudata_setup(model.registry_)
    data = "mdata" if is_mudata else "adata"
    where = "the layer 'imputed' of each modality" if is_mudata else "adata.layers['imputed']"
    lines = [
        "---",
        "library_name: sccountsdiff",
        "tags: [single-cell, scverse, anndata, imputation, diffusion]",
        "---",
        MADE_BY,
        "",
        f"# {type(model).__name__}",
        "",
        "A diffusion model on the natural numbers for single-cell counts, by sccountsdiff. It imputes, denoises and",
        "generates raw counts.",
        "",
        "## What it knows",
        "",
        *(f"- {name}: {value}" for name, value in facts.items() if value),
        "",
        "## Training",
        "",
        *_training(model),
        "",
        "## How to use it",
        "",
        "```python",
        "import sccountsdiff",
        "",
        f"model = sccountsdiff.CountsDiffImputer.load({load})",
        f"model.impute({data})  # raw counts of the same genes, in any order; writes {where}",
        "```",
        "",
        "The files hold weights (safetensors) and JSON, nothing that runs when they are loaded.",
        "",
    ]
    return "\n".join(lines)


def _training(model: CountsDiffBase) -> list[str]:
    if not model.is_trained_:
        return ["It is not trained."]
    n_train, n_held = (_size(model, name) for name in ("train", "validation"))
    lines = [f"- trained on {n_train:,} cells, {n_held:,} cells held out"]
    history = model.history_ or {}
    if "train_loss" in history:
        lines.append(f"- epochs: {len(history['train_loss'])}")
    if "validation_loss" in history and len(history["validation_loss"]):
        losses = history["validation_loss"].iloc[:, 0].astype(float)
        lines.append(
            f"- loss on the cells held out: {losses.min():.5g} in epoch {losses.idxmin()}, whose weights these are "
            f"({losses.iloc[0]:.5g} when it was first measured)"
        )
    return lines


def _size(model: CountsDiffBase, name: str) -> int:
    indices = getattr(model, f"{name}_indices_", None)
    return 0 if indices is None else len(indices)


def _settings(model: CountsDiffBase) -> dict[str, object]:
    """Arguments that were given."""
    init = model.init_params_
    given = init["non_kwargs"] | {name: value for kwargs in init["kwargs"].values() for name, value in kwargs.items()}
    return {name: value for name, value in given.items() if value is not None}


def _some(names, most: int = 5) -> str:
    shown = ", ".join(_code(name) for name in list(names)[:most])
    return shown + (", ..." if len(names) > most else "")


def _code(value: object) -> str:
    """A value as it is, whatever signs are in it: names come from the data, and must not become markup."""
    text = value if isinstance(value, str) else getattr(value, "__name__", None) or str(value)
    text = json.dumps(text, ensure_ascii=False)[1:-1].replace("`", "'")
    return f"`{text}`" if text else "``' '``"
