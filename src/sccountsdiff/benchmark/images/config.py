"""Settings of an image model, by name or from a YAML file."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from sccountsdiff.benchmark.images.network import IMAGE_HEADS, IMAGE_INPUTS
from sccountsdiff.benchmark.optional import optional_import
from sccountsdiff.checks import check_number, check_share, one_of, whole_number
from sccountsdiff.diffusion import get_schedule
from sccountsdiff.files import write_text

LEAST_SCORED = 10
"""Images that a score needs: the inception score is an average over as many parts."""


@dataclasses.dataclass(frozen=True)
class ImageConfig:
    """All settings of an image model and its training.

    The defaults are those of the paper's conditional model of CIFAR-10 with the cosine schedule, as its authors' settings
    have them; ``sccountsdiff.benchmark.images.recipes`` lists all differences.

    Attributes
    ----------
    dataset
        Name of the image set.
    schedule
        Name of the survival schedule.
    conditional
        Whether the network is told the class or the attributes.
    p_uncond
        Share of training images whose condition is left out, for guidance.
    channels, layers_per_block, attention_at, dropout, head, inputs
        The network (:class:`~sccountsdiff.benchmark.images.ImageDenoiser`).
    flip
        Mirror half of the training images.
    batch_size
        Images of one optimiser step, over all devices.
    n_steps
        Optimiser steps.
    lr, n_warmup_steps, lr_final
        Highest learning rate of Adam, steps over which it rises, and the share of it that is left at the end (1: it
        stays; otherwise it falls along a cosine).
    ema_decay
        Decay of the moving average of the weights.
    clip
        Largest norm of a gradient.
    evaluate_every
        Steps between two evaluations: held-out loss, and scores of drawn images.
    n_evaluated
        Images drawn for these scores.
    n_sampling_steps
        Reverse steps of a sample.
    seed
        Seed of all random numbers.

    Examples
    --------
    >>> ImageConfig("cifar10").lr
    0.0002
    """

    dataset: str
    schedule: str = "cosine"
    conditional: bool = True
    p_uncond: float = 0.2
    channels: tuple[int, ...] = (128, 256, 256, 256)
    layers_per_block: int = 4
    attention_at: int = 16
    dropout: float = 0.1
    head: str = "softplus"
    inputs: str = "range"
    flip: bool = True
    batch_size: int = 256
    n_steps: int = 1_000_000
    lr: float = 2e-4
    n_warmup_steps: int = 5000
    lr_final: float = 1.0
    ema_decay: float = 0.9999
    clip: float = 1.0
    evaluate_every: int = 50_000
    n_evaluated: int = 5000
    n_sampling_steps: int = 1000
    seed: int = 0

    def __post_init__(self):
        object.__setattr__(self, "channels", tuple(self.channels))
        get_schedule(self.schedule)  # a KeyError names the known ones
        IMAGE_HEADS.get(self.head)
        one_of("inputs", self.inputs, IMAGE_INPUTS)
        for name in ("batch_size", "n_steps", "evaluate_every", "n_sampling_steps", "layers_per_block", "attention_at"):
            whole_number(name, getattr(self, name))
        if not self.channels:
            raise ValueError("`channels` must have a width for each level of the network, not none.")
        for width in self.channels:
            whole_number("channels", width)
        whole_number("n_evaluated", self.n_evaluated, least=LEAST_SCORED)
        whole_number("n_warmup_steps", self.n_warmup_steps, least=0)
        whole_number("seed", self.seed, least=0)
        for name in ("p_uncond", "dropout", "ema_decay", "lr_final"):
            check_share(name, getattr(self, name))
        for name in ("lr", "clip"):
            check_number(name, getattr(self, name), above=0)


CONFIGS: dict[str, ImageConfig] = {}
"""The paper's settings, and small ones for quick runs, by name: those that each image set registers."""

SMALL = {
    "layers_per_block": 1, "dropout": 0.0, "p_uncond": 0.1, "head": "share", "inputs": "moments", "n_warmup_steps": 50,
    "lr_final": 0.02, "ema_decay": 0.999, "n_sampling_steps": 30, "n_evaluated": 200,
}  # fmt: skip
"""What small networks have in common that train for minutes: they start from the best linear guess."""


def load_config(source: str | Path, **changes) -> ImageConfig:
    """Settings by name, or from a YAML file written by :func:`~sccountsdiff.benchmark.images.save_config` or by hand.

    A file may name one of ``CONFIGS`` to start from under the key ``base``.

    Parameters
    ----------
    source
        Name, or path of a ``.yaml`` file.
    **changes
        Settings to change; ``None`` leaves one as it is.

    Returns
    -------
    The settings.

    Examples
    --------
    >>> load_config("cifar10_cosine", n_steps=10).n_steps
    10
    >>> from pathlib import Path
    >>> _ = Path("mine.yaml").write_text("{base: digits, lr: 0.001}")
    >>> load_config("mine.yaml").lr
    0.001
    """
    changes = {name: value for name, value in changes.items() if value is not None}
    settings, base = {}, str(source)
    if Path(source).suffix in (".yaml", ".yml"):
        yaml = optional_import("yaml", "Reading settings", "images")
        try:
            settings = yaml.safe_load(Path(source).read_text(encoding="utf-8")) or {}
        except (yaml.YAMLError, RecursionError, ValueError) as error:  # also of tags that would make objects
            reason = " ".join(str(error).split())
            raise ValueError(f"{source} cannot be read as settings: {reason}.") from None
        if not isinstance(settings, dict) or not all(isinstance(name, str) for name in settings):
            raise ValueError(f"{source} must hold one setting a line, as in 'n_steps: 1000'.")
        base = settings.pop("base", None)
        unknown = set(settings) - {field.name for field in dataclasses.fields(ImageConfig)}
        if unknown:
            raise ValueError(f"{source} has unknown settings: {', '.join(sorted(unknown))}.")
    if base is None:
        return ImageConfig(**settings | changes)
    if base not in CONFIGS:
        raise KeyError(f"Unknown settings {base!r}; known: {', '.join(CONFIGS)}, or a .yaml file.")
    return dataclasses.replace(CONFIGS[base], **settings | changes)


def save_config(config: ImageConfig, path: str | Path) -> None:
    """Write settings to a YAML file.

    Parameters
    ----------
    config
        Settings.
    path
        File to write.

    Examples
    --------
    >>> save_config(CONFIGS["digits"], "digits.yaml")
    >>> load_config("digits.yaml") == CONFIGS["digits"]
    True
    """
    yaml = optional_import("yaml", "Reading settings", "images")
    settings = dataclasses.asdict(config) | {"channels": list(config.channels)}  # YAML has no tuples
    write_text(path, yaml.safe_dump(settings, sort_keys=False))
