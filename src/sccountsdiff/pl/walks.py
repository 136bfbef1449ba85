"""One cell on its way into the noise and back: counts of some genes over time, as heat maps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
import torch
from matplotlib.axes import Axes
from matplotlib.colors import FuncNorm

from sccountsdiff.diffusion import thin
from sccountsdiff.pl.figure import HEAT, ORANGE, finish, own_axes

if TYPE_CHECKING:
    from sccountsdiff.model import CountsDiffImputer

N_GENES = 20
"""Genes that are shown by default: those of which the cell has most."""

MAX_TICKS = 20
TICKS = [0, 1, *(digit * 10**power for power in range(16) for digit in (3, 10))]


def forward_walk(
    model: CountsDiffImputer,
    cell: int | str = 0,
    genes: Sequence[str] | None = None,
    *,
    n_steps: int = 15,
    seed: int = 0,
    ax: Axes | None = None,
    show: bool | None = None,
    save: str | Path | None = None,
) -> Axes:
    """One cell losing its counts: a row for each gene, a column for each time. Missing counts are left blank.

    Parameters
    ----------
    model
        Its data and its schedule are used; it need not be trained.
    cell
        Position or name of the cell.
    genes
        Genes to show; default: the 20 of which the cell has most.
    n_steps
        Steps from t = 0 to t = 1.
    seed
        Seed.
    ax, show, save
        As in :func:`history`.

    Returns
    -------
    The axes that were drawn into.

    Examples
    --------
    >>> import sccountsdiff
    >>> ax = sccountsdiff.pl.forward_walk(model, genes=adata.var_names[:5], n_steps=4, show=False)
    >>> ax.images[0].get_array().shape  # the cell itself, and four steps
    (5, 5)
    """
    counts, _ = _counts_of(model, cell)
    rows = _shown_genes(model, counts, genes)
    generator = torch.Generator().manual_seed(seed)
    times = np.linspace(0, 1, n_steps + 1)
    p = model.module.schedule.survival(torch.from_numpy(times)).tolist()
    states = [torch.nan_to_num(torch.from_numpy(counts))]
    for p_s, p_t in zip(p[:-1], p[1:], strict=True):
        states.append(thin(states[-1], p_t / p_s, generator))
    values = np.stack([state.numpy() for state in states], axis=1)  # (genes, times)
    values[np.isnan(counts)] = np.nan
    ax, is_own = own_axes(ax)
    _heat_map(ax, values[rows], model.gene_names[rows], [f"{t:.2g}" for t in times])
    ax.set(xlabel="Time t", title="Forward: counts are thinned")
    return finish(ax, is_own, show, save)


def reverse_walk(
    model: CountsDiffImputer,
    cell: int | str = 0,
    genes: Sequence[str] | None = None,
    *,
    hidden: float | Sequence[str] = 0.5,
    n_steps: int = 15,
    seed: int = 0,
    ax: Axes | None = None,
    show: bool | None = None,
    save: str | Path | None = None,
    **impute_kwargs: Any,
) -> Axes:
    """One draw of hidden counts being born, from nothing to counts; observed genes first, the true counts at the right.

    Missing counts are left blank: those of observed genes throughout, those of hidden genes where the truth would stand.

    Parameters
    ----------
    model
        A trained model with data.
    cell
        Position or name of the cell.
    genes
        Genes to show; default: the 20 of which the cell has most.
    hidden
        Genes to hide and fill in (their names are coloured), or the share of the genes to hide at random.
    n_steps
        Reverse steps.
    seed
        Seed of the hidden genes and of the draw.
    ax, show, save
        As in :func:`history`.
    **impute_kwargs
        Further arguments of :meth:`~sccountsdiff.CountsDiffImputer.impute`, such as ``guidance``.

    Returns
    -------
    The axes that were drawn into.

    Examples
    --------
    >>> import sccountsdiff
    >>> ax = sccountsdiff.pl.reverse_walk(model, hidden=adata.var_names[:3], n_steps=4, show=False)
    >>> [label.get_text() for label in ax.get_xticklabels()]
    ['1', '0.75', '0.5', '0.25', '0', 'truth']
    """
    counts, position = _counts_of(model, cell)
    rows = _shown_genes(model, counts, genes)
    is_hidden = _hidden(model, hidden, seed)
    sites = sp.lil_matrix((model.adata.n_obs, len(counts)), dtype=bool)
    sites[position] = is_hidden
    moves = []
    model.impute(
        indices=[position],
        sites=sites.tocsr(),
        n_samples=1,
        n_steps=n_steps,
        seed=seed,
        key_added=None,
        silent=True,
        on_move=lambda move, state: moves.append((move.s, state[0].cpu().numpy())),
        **{"spacing": "even"} | impute_kwargs,
    )
    times = [1.0, *(time for time, _ in moves)]
    states = np.stack([np.zeros_like(counts), *(state for _, state in moves)], axis=1)  # (genes, times)
    states = np.where(is_hidden[:, None], states, counts[:, None])
    values = np.column_stack([states, counts])
    rows = rows[np.argsort(is_hidden[rows], kind="stable")]
    ax, is_own = own_axes(ax)
    _heat_map(ax, values[rows], model.gene_names[rows], [*(f"{t:.2g}" for t in times), "truth"])
    ax.axvline(len(times) - 0.5, color="white", linewidth=2)
    ax.axhline((~is_hidden[rows]).sum() - 0.5, color="white", linewidth=2)
    for label, row in zip(ax.get_yticklabels(), rows, strict=True):
        label.set_color(ORANGE if is_hidden[row] else "black")
    ax.set(xlabel="Time t", title="Reverse: hidden counts are born")
    return finish(ax, is_own, show, save)


def _counts_of(model: CountsDiffImputer, cell: int | str) -> tuple[np.ndarray, int]:
    """Counts of the model's genes in one cell, NaN where they are missing, and its position."""
    if model.adata is None:
        raise ValueError("The model was loaded without data: load it with `adata`.")
    names = model.adata.obs_names
    if isinstance(cell, str):
        if cell not in names:
            raise KeyError(f"Cell {cell!r} is not in adata.obs_names.")
        if not names.is_unique:
            raise ValueError("adata.obs_names are not unique: pass the position of the cell as `cell`, not its name.")
        cell = names.get_loc(cell)
    if not 0 <= cell < len(names):
        raise IndexError(f"`cell` must be a position among the {len(names)} cells, not {cell}.")
    model.module.eval()  # as everything that asks a model leaves it
    rows = np.array([cell])
    _, tensors = model._source(rows=rows).read(rows)
    seen = model.module.read(tensors)  # the model's own word on what is missing
    return seen["x0"].masked_fill(seen["missing"], torch.nan)[0].cpu().numpy(), int(cell)


def _shown_genes(model: CountsDiffImputer, counts: np.ndarray, genes: Sequence[str] | None) -> np.ndarray:
    """Positions of the genes to show."""
    if genes is None:
        return np.argsort(-np.nan_to_num(counts), kind="stable")[:N_GENES]
    return model._gene_positions(genes, "genes")


def _hidden(model: CountsDiffImputer, hidden: float | Sequence[str], seed: int) -> np.ndarray:
    """Which genes of the model are hidden."""
    n_genes = len(model.gene_names)
    if not isinstance(hidden, Real):  # NumPy's numbers are Real too
        return np.isin(np.arange(n_genes), model._gene_positions(hidden, "hidden"))
    if not 0 < hidden <= 1:
        raise ValueError(f"`hidden` must be genes or a share above 0 and up to 1, not {hidden}.")
    return np.random.default_rng(seed).random(n_genes) < hidden


def _heat_map(ax: Axes, values: np.ndarray, genes: np.ndarray, columns: list[str]) -> None:
    # On the scale of log(1 + count), zero and one can be told apart beside hundreds.
    top = float(np.nanmax(values, initial=2.0))  # all may be missing
    norm = FuncNorm((np.log1p, np.expm1), vmin=0, vmax=top)
    image = ax.imshow(values, aspect="auto", cmap=HEAT, norm=norm, interpolation="nearest")
    ax.set_yticks(range(len(genes)), genes, fontsize="small")
    every = math.ceil(len(columns) / MAX_TICKS)
    shown = [label if i % every == 0 or label == "truth" else "" for i, label in enumerate(columns)]
    ax.set_xticks(range(len(columns)), shown, rotation=90, fontsize="small")
    ax.figure.colorbar(image, ax=ax, label="Count", ticks=[tick for tick in TICKS if tick <= top], format="%g")
