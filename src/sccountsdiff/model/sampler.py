"""The arguments of sampling, checked once, and the draw they stand for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scvi import settings
from torch import Tensor

from sccountsdiff.diffusion import (
    ROUNDINGS,
    Attrition,
    Move,
    get_attrition,
    guide,
    reverse_walk,
    sample,
)
from sccountsdiff.module import CountsDiffModule


@dataclass(frozen=True)
class Sampler:
    """How draws are made; see :meth:`CountsDiffImputer.impute` for what the arguments mean."""

    module: CountsDiffModule
    n_steps: int = 15
    known: str = "clean"
    guidance: float = 1.0
    attrition: float | Tensor | Attrition = 0.005
    rounding: str | None = None
    final: str = "sample"
    jump_length: int = 1
    n_resamples: int = 1
    on_move: Callable[[Move, Tensor], None] | None = None

    def __post_init__(self):
        head = self.module.denoiser.head
        if self.known not in ("clean", "noised"):
            raise ValueError(f"`known` must be 'clean' or 'noised', not {self.known!r}.")
        if self.known == "clean" and not self.module.observed_training:
            raise ValueError(
                "This model was trained with `observed_training=False` and has never seen a count marked as known: "
                "pass `known='noised'`."
            )
        if self.final not in ("sample", "mean"):
            raise ValueError(f"`final` must be 'sample' or 'mean', not {self.final!r}.")
        if self.rounding not in (None, *ROUNDINGS):
            raise ValueError(f"`rounding` must be one of {', '.join(ROUNDINGS)} or None, not {self.rounding!r}.")
        if self.rounding == "nb" and head != "nb":
            raise ValueError(f"`rounding='nb'` needs a model with `head='nb'`; this one has head={head!r}.")
        if self.guidance < 0:
            raise ValueError(f"`guidance` must be at least 0, not {self.guidance}.")
        if self.guidance not in (0, 1) and not len(self.module.n_categories) + len(self.module.location):
            raise ValueError(f"`guidance={self.guidance}` has nothing to act on: the model has no covariates.")
        n_grid = self.module.schedule.n_grid
        if n_grid is not None and self.n_steps > n_grid - 1:
            raise ValueError(f"`n_steps` can be at most {n_grid - 1} on the {n_grid} time points of the schedule.")
        # Derived once; frozen dataclasses are set through object.
        object.__setattr__(self, "attrition", get_attrition(self.attrition))
        object.__setattr__(self, "rounding", self.rounding or ("nb" if head == "nb" else "random"))
        object.__setattr__(self, "_walk", reverse_walk(self.n_steps, self.jump_length, self.n_resamples))

    @property
    def is_deterministic(self) -> bool:
        """Whether every draw is the same: one pass, and its expectation."""
        return self.n_steps == 1 and self.n_resamples == 1 and self.final == "mean" and self.known == "clean"

    def describe(self) -> dict:
        """The settings as plain values that any file format takes."""
        names = ("n_steps", "known", "guidance", "rounding", "final", "jump_length", "n_resamples")
        return {name: getattr(self, name) for name in names} | {"attrition": repr(self.attrition)}

    @torch.inference_mode()
    def draw(
        self, x0: Tensor, status: Tensor, categories: Tensor, continuous: Tensor, generator: torch.Generator
    ) -> Tensor:
        """One draw for each cell."""
        return sample(
            guide(self.module.denoise_with(categories, continuous), self.guidance),
            self.module.schedule,
            self._walk,
            x0,
            status,
            attrition=self.attrition,
            rounding=self.rounding,
            known=self.known,
            final=self.final,
            generator=generator,
            on_move=self.on_move,
        )


def make_generator(device: torch.device, *keys: int) -> torch.Generator:
    """A generator of its own for each combination of keys, such as ``(seed, block, draw)``."""
    state = np.random.SeedSequence(keys).generate_state(1, np.uint64)[0]
    return torch.Generator(device).manual_seed(int(state))


def require_positive(**arguments: int) -> None:
    """Refuse numbers of cells, draws, folds and the like that are not whole numbers of at least 1."""
    for name, value in arguments.items():
        if value < 1 or value != int(value):
            raise ValueError(f"`{name}` must be a whole number of at least 1, not {value}.")


def choose_batch_size(batch_size: int | None) -> int:
    """The batch size itself, or that of ``scvi.settings``."""
    batch_size = settings.batch_size if batch_size is None else batch_size
    require_positive(batch_size=batch_size)
    return int(batch_size)


def choose_seed(seed: int | None) -> int:
    """The seed itself, or one from torch's global stream, so that ``scvi.settings.seed`` governs it."""
    if seed is None:
        return int(torch.randint(2**31, (1,)))
    if seed < 0:
        raise ValueError(f"`seed` must be a non-negative integer or None, not {seed}.")
    return int(seed)
