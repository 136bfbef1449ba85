"""The arguments of sampling, checked once, and the draw they stand for."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

import numpy as np
import torch
from scvi import settings
from torch import Tensor

from sccountsdiff.checks import check_number, one_of, whole_number
from sccountsdiff.diffusion import (
    ROUNDINGS,
    Attrition,
    Move,
    get_attrition,
    guide,
    reverse_walk,
    sample,
)
from sccountsdiff.diffusion.guidance import check_guidance
from sccountsdiff.diffusion.repaint import WAYS_TO_SHOW
from sccountsdiff.diffusion.sampling import FINALS
from sccountsdiff.module import CountsDiffModule

logger = logging.getLogger("sccountsdiff")

GENERATING = ("guidance", "attrition", "rounding", "final", "jump_length", "n_resamples", "on_move")
"""Arguments of sampling that make sense where nothing is known."""

FILLING = ("n_steps", "known", *GENERATING)
"""Those for cells of which something is known."""


@dataclass
class Sampler:
    """How draws are made; see :meth:`CountsDiffImputer.impute` for what the arguments mean.

    ``known=None`` is for cells of which nothing is known.
    """

    module: CountsDiffModule
    _: KW_ONLY
    n_steps: int = 15
    known: str | None = "clean"
    guidance: float = 1.0
    attrition: float | Tensor | Attrition = 0.005
    rounding: str | None = None
    final: str = "sample"
    jump_length: int = 1
    n_resamples: int = 1
    on_move: Callable[[Move, Tensor], None] | None = None

    def __post_init__(self):
        head = self.module.denoiser.head
        self.n_steps = whole_number("n_steps", self.n_steps)
        self.jump_length = whole_number("jump_length", self.jump_length)
        self.n_resamples = whole_number("n_resamples", self.n_resamples)
        one_of("final", self.final, FINALS)
        one_of("rounding", self.rounding, (*ROUNDINGS, None))
        if self.rounding == "nb" and head != "nb":
            raise ValueError(f"`rounding='nb'` needs a model with `head='nb'`; this one has head={head!r}.")
        if self.known is not None:
            self._check_known()
        self._check_guidance()
        n_grid = self.module.schedule.n_grid
        if n_grid is not None and self.n_steps > n_grid - 1:
            raise ValueError(f"`n_steps` can be at most {n_grid - 1} on the {n_grid} time points of the schedule.")
        self.attrition = get_attrition(self.attrition)
        self._check_attrition()
        self.rounding = self.rounding or ("nb" if head == "nb" else "random")
        self._walk = reverse_walk(self.n_steps, self.jump_length, self.n_resamples)

    def _check_known(self) -> None:
        one_of("known", self.known, WAYS_TO_SHOW)
        if self.known == "clean" and not self.module.observed_training:
            raise ValueError(
                "This model was trained with `observed_training=False` and has never seen a count marked as known: "
                "pass `known='noised'`."
            )
        if self.known == "noised" and self.n_steps == 1:
            # At t = 1, where the only step starts, no known count is left.
            if self.final == "mean":
                raise ValueError(
                    "`known='noised'` with `n_steps=1` has nothing to go by: known counts are all thinned away at the "
                    "start of the only step, so the mean would be the same for all cells. Use more steps and average "
                    "draws (`n_steps=15`), or `known='clean'` with a model trained with `observed_training=True`."
                )
            logger.warning(
                "`known='noised'` with `n_steps=1`: known counts are all thinned away at the start of the only step, and "
                "draws do not depend on the cell. Use more steps."
            )

    def _check_guidance(self) -> None:
        check_number("guidance", self.guidance)
        check_guidance(self.guidance)
        if not self.module.has_covariates and self.guidance not in (0, 1):
            raise ValueError(f"`guidance={self.guidance}` has nothing to act on: the model has no covariates.")
        if self.guidance != 1 and not self.module.knows_null:
            raise ValueError(
                f"`guidance={self.guidance}` needs predictions without covariates, which this model has not learned: "
                "it was made with `p_uncond=0`. Use `guidance=1`, or train one with `p_uncond` above 0."
            )

    def _check_attrition(self, n_cells: int | None = None) -> None:
        n_genes = len(self.module.denoiser.gene_means)
        self.attrition.check(self.n_steps * self.n_resamples, n_cells=n_cells, n_genes=n_genes)

    def check_cells(self, n_cells: int) -> None:
        """Refuse settings that are made for another number of cells."""
        self._check_attrition(n_cells)

    @property
    def is_deterministic(self) -> bool:
        """Whether every draw is the same: one pass, and its expectation (which goes with clean known counts only)."""
        return self.n_steps == 1 and self.n_resamples == 1 and self.final == "mean"

    def describe(self) -> dict:
        """The settings as plain values that any file format takes."""
        names = ("n_steps", "known", "guidance", "rounding", "final", "jump_length", "n_resamples")
        described = {name: getattr(self, name) for name in names} | {"attrition": repr(self.attrition)}
        return {name: value for name, value in described.items() if value is not None}

    @torch.inference_mode()
    def draw(
        self,
        x0: Tensor,
        status: Tensor,
        categories: Tensor,
        continuous: Tensor,
        generator: torch.Generator,
        rows: np.ndarray | slice | None = None,
    ) -> Tensor:
        """One draw for each cell; ``rows`` say which cells of the data these are."""
        return sample(
            guide(self.module.denoise_with(categories, continuous), self.guidance),
            self.module.schedule,
            self._walk,
            x0,
            status,
            attrition=self.attrition if rows is None else self.attrition.of_cells(rows),
            rounding=self.rounding,
            known=self.known or "clean",
            final=self.final,
            generator=generator,
            on_move=self.on_move,
        )


def make_generator(device: torch.device, *keys: int) -> torch.Generator:
    """A generator of its own for each combination of keys, such as ``(seed, block, draw)``."""
    state = np.random.SeedSequence(keys).generate_state(1, np.uint64)[0]
    return torch.Generator(device).manual_seed(int(state))


def choose_batch_size(batch_size: int | None) -> int:
    """The batch size itself, or that of ``scvi.settings``."""
    return whole_number("batch_size", settings.batch_size if batch_size is None else batch_size)


def choose_seed(seed: int | None) -> int:
    """The seed itself, or one from torch's global stream, so that ``scvi.settings.seed`` governs it."""
    return int(torch.randint(2**31, (1,))) if seed is None else whole_number("seed", seed, least=0)
