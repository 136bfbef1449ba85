"""The settings of sampling, each written once.

Methods of the model, the command line, the benchmark and the notes in ``uns`` derive theirs from here. The command line
reads them before it imports torch, so that nothing here does at the top.
"""

from __future__ import annotations

import dataclasses
import inspect
import logging
import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from sccountsdiff.checks import check_keywords, check_number, one_of, whole_number

if TYPE_CHECKING:
    from torch import Tensor

    from sccountsdiff.diffusion import Attrition
    from sccountsdiff.module import CountsDiffModule

logger = logging.getLogger("sccountsdiff")

Method = TypeVar("Method", bound=Callable)

N_STEPS = {"geometric": 3, "even": 15}
"""Steps of a draw, by their spacing."""


def _setting(default: Any, doc: str) -> Any:
    return dataclasses.field(default=default, metadata={"doc": inspect.cleandoc(doc)})


@dataclass(frozen=True, kw_only=True)
class SamplingSettings:
    """How draws are made. What each setting means is said beside it, and from there in the methods that take it."""

    n_steps: int | None = _setting(
        None,
        """Reverse steps of each draw. ``n_steps=1, final="mean"`` is the conditional mean in a single pass. Default: 3
        geometric or 15 even ones; 50 of cells that are made from nothing.""",
    )
    spacing: Literal["even", "geometric"] | None = _setting(
        None,
        """How long steps are: ``"even"`` (the paper), or ``"geometric"``, in each of which the counts that are there grow by
        the same factor. The first counts settle what genes have in common: with geometric steps few are enough.
        Default: ``"geometric"`` where counts are observed and shown as they are, else ``"even"``.""",
    )
    known: Literal["clean", "noised"] | None = _setting(
        None,
        """How observed counts are shown to the network: as they are (``"clean"``), or thinned to the level of the others
        (``"noised"``, the RePaint of the paper; it needs several steps, as nothing is left of them at the start).
        Default: as in training, ``"clean"`` unless the model was made with ``observed_training=False``.""",
    )
    guidance: float = _setting(
        1.0, """Strength of the covariates: 1 is the conditional model, 0 ignores them, above 1 exaggerates them."""
    )
    attrition: float | Tensor | Attrition = _setting(
        0.005,
        """How many counts may die again in each step. A number: the share of the most that is possible (eta of the
        ``rescale`` schedule). Or an
        :class:`~sccountsdiff.diffusion.Attrition`, or a tensor with a rate for each step; for each step and gene; or for
        each step, cell of ``adata`` and gene of the model. With resampling, steps count as often as they are walked.""",
    )
    rounding: str | None = _setting(
        None,
        """How the expected births of a step become whole numbers: ``"random"``, ``"nearest"``, ``"poisson"`` or, with
        a head that predicts such a law, ``"nb"``, ``"mixture"`` or ``"hurdle"``. Default: that of the head.""",
    )
    final: Literal["sample", "mean", "log_mean"] | None = _setting(
        None,
        """``"sample"`` draws to the end. ``"mean"`` takes the expectation in place of the last draw of each chain.
        ``"log_mean"`` is ``expm1(E[log1p(count)])``, the best guess if errors are measured on log counts: always one
        pass without draws, whatever ``n_steps`` and ``n_resamples``. Default: ``"mean"`` where draws are averaged and the
        head predicts a law, else ``"sample"``.""",
    )
    jump_length: int = _setting(1, """RePaint's resampling: number of steps of a stretch that is walked again.""")
    n_resamples: int = _setting(
        1, """RePaint's resampling: how often each stretch of ``jump_length`` steps is walked."""
    )

    @property
    def is_deterministic(self) -> bool:
        """Whether every draw is the same: one pass, and its expectation (which needs observed counts shown clean)."""
        one_pass = self.n_steps == 1 and self.n_resamples == 1
        return self.final == "log_mean" or (one_pass and self.final == "mean")

    def describe(self) -> dict[str, Any]:
        """The settings as plain values that any file format takes; not every version of AnnData can write None."""
        given = {name: value for name, value in vars(self).items() if value is not None}
        return {name: value if isinstance(value, int | float | str) else repr(value) for name, value in given.items()}

    def resolve(
        self, module: CountsDiffModule, *, generating: bool = False, averaging: bool = False
    ) -> ResolvedSettings:
        """Check the settings against a model, and fill in what was left to it.

        Parameters
        ----------
        module
            What draws.
        generating
            Whether cells are made from nothing: then there is nothing observed to be shown.
        averaging
            Whether only the mean over draws is wanted, and how far they are spread.
        """
        from sccountsdiff.diffusion import ROUNDINGS, get_attrition
        from sccountsdiff.diffusion.guidance import check_guidance
        from sccountsdiff.diffusion.rounding import MEAN_ROUNDINGS
        from sccountsdiff.diffusion.sampling import FINALS
        from sccountsdiff.diffusion.walk import SPACINGS
        from sccountsdiff.nn import HEADS

        one_of("spacing", self.spacing, (*SPACINGS, None))
        if self.n_steps is None or self.spacing is None:
            return self._with_steps(module, generating).resolve(module, generating=generating, averaging=averaging)
        whole = {name: whole_number(name, getattr(self, name)) for name in ("n_steps", "jump_length", "n_resamples")}
        one_of("final", self.final, (*FINALS, None))
        if self.final == "log_mean" and set(whole.values()) != {1}:
            # After drawn steps, the mean over draws would no longer be the mean of logarithms.
            one_pass = dataclasses.replace(self, n_steps=1, jump_length=1, n_resamples=1)
            return one_pass.resolve(module, generating=generating)
        one_of("rounding", self.rounding, (*ROUNDINGS, None))
        head = module.denoiser.head
        if self.rounding not in (*MEAN_ROUNDINGS, head.rounding, None):
            able = " or ".join(f"`head={name!r}`" for name in HEADS if HEADS[name].rounding == self.rounding)
            raise ValueError(
                f"`rounding={self.rounding!r}` needs a model with {able}; this one has the head {type(head).__name__}."
            )
        known = None if generating else self._resolve_known(module)
        check_number("guidance", self.guidance)
        check_guidance(self.guidance)
        if not module.has_covariates and self.guidance not in (0, 1):
            raise ValueError(f"`guidance={self.guidance}` has nothing to act on: the model has no covariates.")
        if self.guidance != 1 and not module.knows_null:
            raise ValueError(
                f"`guidance={self.guidance}` needs predictions without covariates, which this model has not learned: "
                "it was made with `p_uncond=0`. Use `guidance=1`, or train one with `p_uncond` above 0."
            )
        n_grid = module.schedule.n_grid
        if n_grid is not None and whole["n_steps"] > n_grid - 1:
            raise ValueError(f"`n_steps` can be at most {n_grid - 1} on the {n_grid} time points of the schedule.")
        if n_grid is not None and self.spacing == "geometric":
            raise ValueError(
                "`spacing='geometric'` needs a schedule in continuous time: on points in time use `spacing='even'`."
            )
        attrition = get_attrition(self.attrition)
        attrition.check(whole["n_steps"] * whole["n_resamples"], n_genes=module.n_genes)
        rounding = self.rounding or head.rounding
        # Rounding a mean to one of the whole numbers beside it, as the paper does, has no law to take a spread from.
        has_law = rounding not in ("random", "nearest") and not (known == "noised" and whole["n_steps"] == 1)
        final = self.final or ("mean" if averaging and has_law else "sample")
        found = {"known": known, "attrition": attrition, "rounding": rounding, "final": final}
        return ResolvedSettings(**{**vars(self), **whole, **found, "guidance": float(self.guidance)})

    def _with_steps(self, module: CountsDiffModule, generating: bool) -> SamplingSettings:
        """The same with a spacing and a number of steps."""
        is_clean = self.known == "clean" if self.known else module.observed_training
        n_grid = module.schedule.n_grid
        spacing = self.spacing or ("geometric" if is_clean and not generating and n_grid is None else "even")
        n_steps = N_STEPS[spacing] if self.n_steps is None else self.n_steps
        if self.n_steps is None and n_grid is not None:
            n_steps = min(n_steps, n_grid - 1)
        return dataclasses.replace(self, spacing=spacing, n_steps=n_steps)

    def _resolve_known(self, module: CountsDiffModule) -> Literal["clean", "noised"]:
        from sccountsdiff.diffusion.repaint import WAYS_TO_SHOW

        known = ("clean" if module.observed_training else "noised") if self.known is None else self.known
        one_of("known", known, WAYS_TO_SHOW)
        if known == "clean" and not module.observed_training:
            raise ValueError(
                "This model was trained with `observed_training=False` and has never seen a count marked as observed: "
                "pass `known='noised'`."
            )
        if known == "noised" and self.n_steps == 1:
            # At t = 1, where the only step starts, no observed count is left.
            if self.final not in ("sample", None):
                raise ValueError(
                    "`known='noised'` with `n_steps=1` has nothing to go by: observed counts are all thinned away at the "
                    "start of the only step, so the mean would be the same for all cells. Use more steps and average "
                    "draws (`n_steps=15`), or `known='clean'` with a model trained with `observed_training=True`."
                )
            logger.warning(
                "`known='noised'` with `n_steps=1`: observed counts are all thinned away at the start of the only step, "
                "and draws do not depend on the cell. Use more steps."
            )
        return known


@dataclass(frozen=True, kw_only=True)
class ResolvedSettings(SamplingSettings):
    """Settings that were checked against a model, with nothing left open but ``known`` of cells made from nothing."""

    n_steps: int
    spacing: Literal["even", "geometric"]
    attrition: Attrition
    rounding: str
    final: Literal["sample", "mean", "log_mean"]


def setting_fields(leave_out: tuple[str, ...] = (), **defaults: Any) -> list[inspect.Parameter]:
    """The settings as keyword arguments, with other defaults for some."""
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=defaults.get(field.name, field.default),
            annotation=field.type,
        )
        for field in dataclasses.fields(SamplingSettings)
        if field.name not in leave_out
    ]


def takes_sampling_settings(
    after: str, *, leave_out: tuple[str, ...] = (), **defaults: Any
) -> Callable[[Method], Method]:
    """Method decorator: shows the settings in place of ``**sampling`` in signature and docstring.

    Parameters
    ----------
    after
        Argument behind which they stand in the signature.
    leave_out
        Settings that the method does not take.
    **defaults
        Defaults that are not those of :class:`SamplingSettings`.
    """

    def decorate(method: Method) -> Method:
        settings = setting_fields(leave_out, **defaults)
        signature = inspect.signature(method)
        others = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        place = [p.name for p in others].index(after) + 1
        shown = signature.replace(parameters=[*others[:place], *settings, *others[place:]])
        method.__signature__ = shown  # type: ignore[attr-defined]
        docs = {field.name: field.metadata["doc"] for field in dataclasses.fields(SamplingSettings)}
        entries = [f"{setting.name}\n" + textwrap.indent(docs[setting.name], "    ") for setting in settings]
        method.__doc__ = re.sub(
            r"^( *)\*\*sampling\n(?:\1 +.*\n)+",
            lambda found: textwrap.indent("\n".join(entries), found[1]) + "\n",
            method.__doc__ or "",
            flags=re.MULTILINE,
        )
        return method

    return decorate


def read_settings(method: Callable, given: Mapping[str, Any]) -> SamplingSettings:
    """The settings that a method was given, else its defaults; an error names one that it does not take."""
    parameters = inspect.signature(method).parameters
    check_keywords(f"{method.__name__}()", given, [name for name in parameters if name != "self"])
    names = [field.name for field in dataclasses.fields(SamplingSettings) if field.name in parameters]
    return SamplingSettings(**{name: given.get(name, parameters[name].default) for name in names})
