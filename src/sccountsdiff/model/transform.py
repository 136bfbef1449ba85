"""Other values of covariates, and cells carried over to them.

A network that is told a new value while it is shown the counts as they are believes the counts, which still tell of the old
one. So the counts are carried over first.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from sccountsdiff.compat import setup_args
from sccountsdiff.data.covariates import check_covariates, encode
from sccountsdiff.data.messages import listing, some_of, suggestion
from sccountsdiff.diffusion import NOISED, OBSERVED, guide
from sccountsdiff.diffusion.rounding import checked_mean
from sccountsdiff.model.base import CountsDiffBase
from sccountsdiff.module import CountsDiffModule

HIDDEN_SHARE = 0.25
"""Share of the genes, those that respond most to a change of covariates, that are hidden while it is estimated."""

N_PARTS = 2
"""Parts of the genes, each of which is predicted from the others."""

LEAST = 1e-12
"""Least expected count, so that changes have a logarithm."""


@dataclass(frozen=True)
class Transform:
    """New values of some covariates, and what becomes of cells that take them.

    Attributes
    ----------
    name
        What to call it in notes.
    codes
        New codes of categorical covariates, by position.
    values
        New values of continuous covariates, by position.
    """

    name: str = ""
    codes: Mapping[int, int] = field(default_factory=dict)
    values: Mapping[int, float] = field(default_factory=dict)

    def __call__(
        self,
        module: CountsDiffModule,
        cells: dict[str, Tensor],
        status: Tensor,
        guidance: float = 1.0,
        rounding: torch.Generator | None = None,
    ) -> dict[str, Tensor]:
        """The cells with the new covariates, and with their observed counts as they would be expected then.

        Parameters
        ----------
        module
            What predicts.
        cells
            Counts and covariates, as :meth:`CountsDiffModule.read` gives them.
        status
            Which counts are observed: only these are looked at, and carried over.
        guidance
            Strength of the covariates.
        rounding
            Source of randomness that makes whole counts of them, as are needed where they are to be thinned.
        """
        if self == KEEP:
            return cells
        categories, continuous = cells["categories"].clone(), cells["continuous"].clone()
        for k, code in self.codes.items():
            categories[:, k] = code
        for k, value in self.values.items():
            continuous[:, k] = module.standardised(torch.full_like(module.location, value))[k]
        new = {"categories": categories, "continuous": continuous}
        carried = _carry_over(module, cells, cells | new, status, guidance)
        if rounding is not None:
            up = torch.rand(carried.shape, generator=rounding, device=carried.device) < carried.frac()
            carried = carried.floor() + up
        return cells | new | {"x0": carried}


KEEP = Transform()
"""Nothing is replaced."""


def read_transforms(
    model: CountsDiffBase,
    transform_covariates: Mapping[str, object] | None,
    transform_batch: object = None,
    n_draws: int | None = None,
) -> list[Transform]:
    """The transforms that a user asks for, checked: one for each combination of values.

    ``n_draws`` is the number of draws that are to take them in turn.
    """
    asked = dict(_checked_mapping(transform_covariates))
    if transform_batch is not None:
        batch_key = setup_args(model.registry_)["batch_key"]
        if batch_key is None:
            raise ValueError(
                "`transform_batch` needs a model whose data was set up with `batch_key`; other covariates are replaced by "
                "`transform_covariates`."
            )
        if batch_key in asked:
            raise ValueError(
                f"`transform_batch` and `transform_covariates` both replace {batch_key!r}: pass one of them."
            )
        asked[batch_key] = transform_batch
    if not asked:
        return [KEEP]
    keys = [*model.categories, *model.continuous_keys]
    if not keys:
        raise ValueError("`transform_covariates` has nothing to act on: the model has no covariates.")
    for key in asked:
        if key not in keys:
            raise KeyError(
                f"transform_covariates: {key!r} is not a covariate of the model, which has {listing(keys)}."
                + suggestion(key, keys)
            )
    choices = [[(key, value) for value in _as_list(key, values)] for key, values in asked.items()]
    transforms = [_transform(model, dict(combination)) for combination in itertools.product(*choices)]
    if n_draws is not None and n_draws % len(transforms):
        raise ValueError(
            f"`n_samples={n_draws}` draws cannot take {len(transforms)} values in turn, each as often: pass a multiple of "
            f"{len(transforms)}."
        )
    return transforms


def _checked_mapping(given: Mapping[str, object] | None) -> Mapping[str, object]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(f"`transform_covariates` must be a dict from covariates to values, not {given!r}.")
    return given


def _as_list(key: str, values: object) -> list:
    found = list(values) if pd.api.types.is_list_like(values) else [values]  # type: ignore[call-overload]
    if not found:
        raise ValueError(f"transform_covariates[{key!r}] is empty: pass a value, or a list of values.")
    return found


def _transform(model: CountsDiffBase, new: Mapping[str, Any]) -> Transform:
    codes, values = {}, {}
    for key, value in new.items():
        table, name = pd.DataFrame({key: [value]}), "transform_covariates"
        if key not in model.categories:
            check_covariates(table, [key], continuous=True, size_factor_key=model.size_factor_key, name=name)
            values[model.continuous_keys.index(key)] = float(value)
            continue
        known = model.categories[key]
        code = int(encode(table, {key: known}, unseen_to_null=True)[0, 0])
        if code == len(known):
            raise ValueError(
                f"transform_covariates[{key!r}]: the model was not trained on {value!r}. It knows "
                f"{some_of(list(map(repr, known.tolist())), 10)}.{suggestion(value, known)}"
            )
        codes[list(model.categories).index(key)] = code
    return Transform(", ".join(f"{key}={value}" for key, value in new.items()), codes, values)


def _carry_over(
    module: CountsDiffModule, old: dict[str, Tensor], new: dict[str, Tensor], status: Tensor, guidance: float
) -> Tensor:
    """Observed counts of cells, as they would be expected under new covariates; as they are where nothing changes.

    What is expected under the old covariates and under the new ones is compared, given genes that hardly respond: those
    that do would contradict the new ones. Where less is expected, as large a share of the counts goes; where more is, the
    difference is added, as a count of 0 would stay 0 by any factor.
    """
    x0, observed = old["x0"], status == OBSERVED
    laws = [guide(module.denoise_with(cells["categories"], cells["continuous"]), guidance) for cells in (old, new)]

    def expect(seen: Tensor) -> list[Tensor]:
        shown = torch.where(seen, OBSERVED, NOISED).to(x0.dtype)
        return [checked_mean(law(x0 * seen, shown, torch.ones_like(x0[:, 0]))).clamp_min(LEAST) for law in laws]

    nothing = torch.zeros_like(observed)
    before, after = expect(nothing)
    if not module.observed_training:  # it has never seen a count as it is: all that it knows of the cell is its depth
        depth = (x0 * observed).sum(1, keepdim=True) / (before * observed).sum(1, keepdim=True).clamp_min(LEAST)
        before, after = depth * before, depth * after
    else:
        seen = observed & ~_responding(before, after)
        part = torch.arange(x0.shape[1], device=x0.device) % N_PARTS
        for k in range(N_PARTS):
            given_others = expect(seen & (part != k))
            before, after = (torch.where(part == k, *pair) for pair in zip(given_others, (before, after), strict=True))
    carried = torch.where(after < before, x0 * (after / before), x0 + (after - before))
    changes = (old["categories"] != new["categories"]).any(1) | (old["continuous"] != new["continuous"]).any(1)
    return torch.where(observed & changes[:, None], carried, x0)


def _responding(before: Tensor, after: Tensor) -> Tensor:
    """The genes of each cell whose counts would tell most which of two expectations is right (symmetrised divergence)."""
    information = (after - before) * (after / before).log()
    n = int(HIDDEN_SHARE * before.shape[1])
    most = information.topk(n, dim=1).indices
    return torch.zeros_like(before, dtype=torch.bool).scatter_(1, most, True)
