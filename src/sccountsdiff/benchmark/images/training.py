"""Training of an image model by Lightning: batches, losses and scores on the way, checkpoints to continue from."""

from __future__ import annotations

import dataclasses
import io
import logging
import math
import os
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import pandas as pd
import torch
from lightning.pytorch.utilities.exceptions import SIGTERMException
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

from sccountsdiff.benchmark.images.config import ImageConfig, save_config
from sccountsdiff.benchmark.images.data import Splits
from sccountsdiff.benchmark.images.model import ImageDiffusion, load_model
from sccountsdiff.benchmark.quiet import quiet
from sccountsdiff.checkpoints import check_settings, read_checkpoint, save_whole
from sccountsdiff.checks import whole_number
from sccountsdiff.files import set_aside, write_table
from sccountsdiff.seeding import global_seed
from sccountsdiff.training import BestAverage, as_signalled, look_at_losses

logger = logging.getLogger("sccountsdiff")

NOT_WANTED = ("use_distributed_sampler", "logger", "enable_model_summary", "enable_checkpointing")
"""What Lightning's trainer would do by itself; ``StepBatches``, ``History`` and ``Saver`` do it here."""

Evaluate = Callable[[ImageDiffusion, int], dict[str, float]]
"""Called with the model (averaged weights) and the step; what it returns becomes part of the history.

Of several processes that train together each calls it, so that they can share the work; what the first returns counts."""


@dataclasses.dataclass(eq=False)
class StepBatches(Sampler):
    """Batches of a training run that may stop after any step and continue as if it had not.

    Every pass over the images has its own order, drawn from the seed and the number of the pass; steps walk through one
    pass after the other.

    Parameters
    ----------
    n_images
        Images to choose from.
    batch_size
        Images of one step, over all processes.
    n_steps
        Steps of the whole training.
    seed
        Seed of the order.
    first_step
        Says at which step to begin, once iteration begins: 0, or where a checkpoint left off.
    rank, world_size
        This process, and how many there are: each takes every ``world_size``-th image of a batch.

    Examples
    --------
    >>> all_of_it = [batch for batch in StepBatches(5, 2, 4, seed=0)]
    >>> later = [batch for batch in StepBatches(5, 2, 4, seed=0, first_step=lambda: 3)]
    >>> all_of_it[3:] == later
    True
    >>> sorted(sum(all_of_it, [])[:5])
    [0, 1, 2, 3, 4]
    """

    n_images: int
    batch_size: int
    n_steps: int
    seed: int
    first_step: Callable[[], int] = lambda: 0
    rank: int = 0
    world_size: int = 1

    def __post_init__(self):
        if self.batch_size % self.world_size:
            raise ValueError(f"`batch_size` {self.batch_size} cannot be shared evenly by {self.world_size} processes.")

    def __len__(self) -> int:
        return self.n_steps

    def __iter__(self) -> Iterator[list[int]]:
        order = lru_cache(2)(lambda number: np.random.default_rng([self.seed, number]).permutation(self.n_images))
        for step in range(self.first_step(), self.n_steps):
            positions = range(step * self.batch_size + self.rank, (step + 1) * self.batch_size, self.world_size)
            yield [int(order(position // self.n_images)[position % self.n_images]) for position in positions]


class History(pl.Callback):
    """Writes a line of ``history.csv`` at every evaluation, and calls the user's own evaluation.

    Parameters
    ----------
    path
        File to write; lines up to the step of a checkpoint that training goes on from are kept.
    evaluate
        Called with the model (its averaged weights) and the step.
    """

    def __init__(self, path: Path, evaluate: Evaluate | None = None):
        self.path, self.evaluate = path, evaluate
        self._losses: list[Tensor] = []

    def state_dict(self) -> dict[str, Tensor]:
        """Losses since the last line: part of a checkpoint."""
        return {"losses": torch.stack(self._losses).cpu() if self._losses else torch.empty(0)}

    def load_state_dict(self, state_dict: dict[str, Tensor]) -> None:
        """Go on from a checkpoint."""
        self._losses = list(state_dict["losses"])

    def on_train_start(self, trainer: pl.Trainer, pl_module: ImageDiffusion) -> None:
        """Forget what a longer run wrote after the checkpoint."""
        if not trainer.is_global_zero:
            return
        rows = read_history(self.path)
        rows = rows[rows["step"] <= trainer.global_step]
        if len(rows):
            write_table(self.path, rows)

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: ImageDiffusion, outputs, batch, batch_idx) -> None:
        """Remember the loss."""
        self._losses.append(outputs["loss"].detach())

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: ImageDiffusion) -> None:
        """Write a line; the first one before training."""
        if trainer.sanity_checking and trainer.global_step:
            return
        losses = torch.stack(self._losses).cpu() if self._losses else torch.tensor([math.nan])
        self._losses = []
        row = {"step": trainer.global_step, "train_loss": losses.mean().item()}
        row["train_loss_sd"] = losses.std(correction=0).item()
        row["heldout_loss"] = trainer.callback_metrics["heldout_loss"].item()
        if self.evaluate is not None:
            row |= self.evaluate(pl_module, trainer.global_step)
        if trainer.is_global_zero:
            write_table(self.path, pd.DataFrame([*read_history(self.path).to_dict("records"), row]))


def read_history(path: Path) -> pd.DataFrame:
    r"""The whole lines of a history; a file with others is set aside, and what is whole is written in its place.

    Examples
    --------
    >>> _ = Path("history.csv").write_text("step,train_loss\n0,\n2,1.5\n4")
    >>> read_history(Path("history.csv"))["step"].tolist(), Path("history.csv.damaged").is_file()
    ([0, 2], True)
    """
    none = pd.DataFrame({"step": np.array([], dtype=int)})
    if not path.is_file():
        return none
    text = path.read_text(errors="replace")
    header, *lines = text.splitlines() or [""]
    is_table = header.split(",")[0] == "step"
    is_whole = [_numbers(line) == header.count(",") + 1 for line in lines]
    if lines and not text.endswith("\n"):
        is_whole[-1] = False
    read = partial(pd.read_csv, float_precision="round_trip")  # what is written again must not drift
    if is_table and all(is_whole):
        return read(io.StringIO(text))
    set_aside(path, "not all of its lines are whole" if is_table else "it does not begin with the names of its columns")
    if not is_table or not any(is_whole):
        return none
    kept = [line for line, whole in zip(lines, is_whole, strict=True) if whole]
    rows = read(io.StringIO("\n".join([header, *kept])))
    write_table(path, rows)
    return rows


def _numbers(line: str) -> int:
    """How many fields a line has, all of which are numbers or empty; 0 if there are others."""
    first, *others = line.split(",")
    try:
        return len([int(first), *(float(field or 0) for field in others)])
    except ValueError:
        return 0


class Saver(pl.Callback):
    """Writes a checkpoint every so many steps, and after the last one; the one before it is kept.

    Where a step is evaluated, its line of the history is written first: a run that is killed between the two evaluates
    again, while one that had a checkpoint without its line would never get it.

    Parameters
    ----------
    path
        File, replaced by each checkpoint.
    every
        Steps between two.
    evaluate_every
        Steps between two evaluations.
    """

    def __init__(self, path: Path, every: int, evaluate_every: int):
        self.path, self.every, self.evaluate_every = path, every, evaluate_every

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: ImageDiffusion, outputs, batch, batch_idx) -> None:
        """Write it, if it is time and no evaluation follows."""
        if trainer.global_step % self.evaluate_every:
            self._save(trainer, pl_module)
        elif self._is_time(trainer):
            look_at_losses(pl_module)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: ImageDiffusion) -> None:
        """Write it, if it is time."""
        if not trainer.sanity_checking:
            self._save(trainer, pl_module)

    def _is_time(self, trainer: pl.Trainer) -> bool:
        return trainer.global_step % self.every == 0 or trainer.global_step == trainer.max_steps

    def _save(self, trainer: pl.Trainer, pl_module: ImageDiffusion) -> None:
        if not self._is_time(trainer):
            return
        look_at_losses(pl_module)
        if not all(weights.isfinite().all() for weights in pl_module.parameters()):
            raise ValueError(
                f"Weights are not finite after step {trainer.global_step}: training stopped, and the last checkpoint stays."
            )
        save_whole(trainer, self.path, previous(self.path))


def previous(checkpoint: Path) -> Path:
    """Where the checkpoint before the last one is.

    Examples
    --------
    >>> previous(Path("last.ckpt")).name
    'previous.ckpt'
    """
    return checkpoint.with_name(f"previous{checkpoint.suffix}")


class _Stream(pl.LightningDataModule):
    """Loaders that know at which step training is."""

    def __init__(self, splits: Splits, config: ImageConfig, n_workers: int, n_heldout: int):
        super().__init__()
        self.splits, self.config, self.n_workers, self.n_heldout = splits, config, n_workers, n_heldout

    def train_dataloader(self) -> DataLoader:
        images, config, trainer = self.splits.train, self.config, self.trainer
        share = {"rank": trainer.global_rank, "world_size": trainer.world_size}
        sizes = (len(images), config.batch_size, config.n_steps)
        batches = StepBatches(*sizes, config.seed, first_step=lambda: trainer.global_step, **share)
        return DataLoader(images, batch_sampler=batches, num_workers=self.n_workers)

    def val_dataloader(self) -> DataLoader:
        images = self.splits.heldout
        chosen = range(len(images))[: self.n_heldout][self.trainer.global_rank :: self.trainer.world_size]
        return DataLoader(images, self.config.batch_size, sampler=chosen, num_workers=self.n_workers)


def default_device() -> str:
    """``"cuda"`` if there is one, else ``"cpu"``: torch draws binomial numbers on no other device.

    Examples
    --------
    >>> default_device() in ("cuda", "cpu")
    True
    """
    return "cuda" if torch.cuda.is_available() else "cpu"


def local_devices(accelerator: str | None = None, devices: int | str | Sequence[int] = "auto") -> list[torch.device]:
    """The devices of this machine that Lightning's ``accelerator`` and ``devices`` stand for.

    Parameters
    ----------
    accelerator
        ``"cuda"`` or ``"cpu"``; by default that of ``default_device``.
    devices
        ``"auto"`` or -1 for all, how many, or which: ``[1, 3]`` or ``"1,3"``.

    Returns
    -------
    The devices; the CPU is one.

    Examples
    --------
    >>> local_devices("cpu", 2)
    [device(type='cpu')]
    """
    kind = {"gpu": "cuda", "auto": None}.get(str(accelerator), accelerator) or default_device()
    if kind not in ("cuda", "cpu"):
        raise ValueError(
            f"`accelerator` must be 'cuda' or 'cpu', not {accelerator!r}: binomial numbers need one of them."
        )
    if isinstance(devices, str) and devices != "auto":
        try:
            numbers = [int(part) for part in devices.split(",") if part.strip()]
        except ValueError:
            raise ValueError(f"`devices` must be 'auto', a number or numbers such as '1,3', not {devices!r}.") from None
        devices = numbers if "," in devices else numbers[0]
    if isinstance(devices, int) and devices != -1:
        whole_number("devices", devices)
    if kind == "cpu":
        return [torch.device("cpu")]
    n = torch.cuda.device_count()
    chosen = range(n) if devices in ("auto", -1) else range(devices) if isinstance(devices, int) else devices
    if not chosen or not all(0 <= number < n for number in chosen):
        raise ValueError(f"`devices` asks for {devices!r} with `accelerator` 'cuda', but this machine has {n} GPU(s).")
    return [torch.device("cuda", number) for number in chosen]


def own_device(devices: Sequence[torch.device]) -> torch.device:
    """The one of these devices that this process works on: Lightning numbers the processes of a machine.

    Examples
    --------
    >>> own_device([torch.device("cpu")])
    device(type='cpu')
    """
    return devices[int(os.environ.get("LOCAL_RANK", 0)) % len(devices)]


def check_options(options: dict[str, Any]) -> list[torch.device]:
    """Refuse options of :func:`train` that cannot be, and find its devices.

    Examples
    --------
    >>> check_options({"n_workers": -1})
    Traceback (most recent call last):
    ...
    ValueError: `n_workers` must be a whole number of at least 0, not -1.
    """
    for name, least in ("n_heldout", 1), ("n_workers", 0), ("checkpoint_every", 1), ("stop_at", 1):
        if options.get(name) is not None:
            whole_number(name, options[name], least)
    return local_devices(options.get("accelerator"), options.get("devices", "auto"))


def _resumable(checkpoint: Path, config: ImageConfig) -> tuple[Path, int] | None:
    """The newest whole checkpoint and its step; an error if it was made with other settings, ``None`` if there is none."""
    for path in (checkpoint, previous(checkpoint)):
        saved = read_checkpoint(path)
        if saved is None:
            continue
        check_settings(path, saved.get("image_model", {}).get("config", {}), dataclasses.asdict(config))
        if path != checkpoint:
            logger.warning("Training goes on from %s, at step %d.", path, saved["global_step"])
        return path, saved["global_step"]
    return None


def train(
    config: ImageConfig,
    splits: Splits,
    output: str | Path,
    *,
    evaluate: Evaluate | None = None,
    checkpoint_every: int | None = None,
    resume: bool = False,
    stop_at: int | None = None,
    n_heldout: int = 1000,
    n_workers: int = 0,
    compile: bool = False,
    progress: bool = False,
    **trainer_kwargs: Any,
) -> ImageDiffusion:
    """Train a model; the one returned has the averaged weights.

    Writes ``config.yaml``, ``history.csv`` and ``last.ckpt`` into a folder. A run that continues from ``last.ckpt`` ends with
    the same weights, bit for bit, as one that was never stopped. The checkpoint before the last is ``previous.ckpt``: if the
    last one is damaged, it is set aside and training goes on from there. A loss that is not a number ends the training.

    Parameters
    ----------
    config
        Settings.
    splits
        Images.
    output
        Folder.
    evaluate
        Called before the first step and then every ``config.evaluate_every`` steps, with the model and the step; its numbers
        go into the history. Each of several processes calls it.
    checkpoint_every
        Steps between two checkpoints; by default those between two evaluations, at most 1,000.
    resume
        Continue from the newest whole checkpoint in the folder, if there is one.
    stop_at
        Stop after this step of ``config.n_steps``, as an interruption would.
    n_heldout
        Largest number of held-out images for the held-out loss.
    n_workers
        Processes that read images.
    compile
        Compile the network with :func:`torch.compile`.
    progress
        Show a progress bar.
    **trainer_kwargs
        Arguments of :class:`lightning.pytorch.Trainer`, such as ``accelerator`` (``"cuda"`` or ``"cpu"``), ``devices``,
        ``strategy`` or ``precision``.

    Returns
    -------
    The trained model.

    Examples
    --------
    >>> from sccountsdiff.benchmark.images import load_config, load_images
    >>> config = load_config("digits", channels=(8, 8), n_steps=2, evaluate_every=2, n_warmup_steps=1)
    >>> model = train(config, load_images("digits"), "run")
    >>> from pathlib import Path
    >>> sorted(path.name for path in Path("run").iterdir())
    ['config.yaml', 'history.csv', 'last.ckpt']
    """
    numbers = {"n_heldout": n_heldout, "n_workers": n_workers, "checkpoint_every": checkpoint_every, "stop_at": stop_at}
    devices = check_options(numbers | trainer_kwargs)
    output = Path(output)
    checkpoint = output / "last.ckpt"
    found = _resumable(checkpoint, config) if resume else None
    if found is not None and found[1] >= config.n_steps:
        return load_model(found[0], own_device(devices))
    for part in (splits.train, splits.heldout):
        part.prepare()
    output.mkdir(parents=True, exist_ok=True)
    if found is None:
        for old in (checkpoint, previous(checkpoint), output / "history.csv"):
            old.unlink(missing_ok=True)
    save_config(config, output / "config.yaml")
    evaluate_every = min(config.evaluate_every, config.n_steps)
    history = History(output / "history.csv", evaluate)
    # In this order: an evaluation ends before the averaged weights are put away again, and a checkpoint is written after
    # the step has entered the average.
    callbacks = [
        history,
        BestAverage(config.ema_decay, monitor=""),  # no metric chooses: the last average stays
        Saver(checkpoint, checkpoint_every or min(evaluate_every, 1000), evaluate_every),
        *trainer_kwargs.pop("callbacks", []),
    ]
    with quiet(), global_seed(config.seed):
        trainer = pl.Trainer(
            **{
                "max_steps": min(stop_at or config.n_steps, config.n_steps),
                "max_epochs": 1,
                "accelerator": default_device(),
                "gradient_clip_val": config.clip,
                "check_val_every_n_epoch": None,
                "val_check_interval": evaluate_every,
                "num_sanity_val_steps": -1,  # an evaluation before the first step
                "enable_progress_bar": progress,
                "callbacks": callbacks,
            }
            | dict.fromkeys(NOT_WANTED, False)
            | trainer_kwargs
        )
        model = ImageDiffusion.for_images(config, splits.train)
        if compile:
            model.network.unet.compile()
        stream = _Stream(splits, config, n_workers, n_heldout)
        try:
            trainer.fit(model, stream, ckpt_path=None if found is None else found[0], weights_only=True)
        except (SystemExit, SIGTERMException) as error:
            raise as_signalled(error) from None
    return model.to(trainer.strategy.root_device).eval()  # Lightning leaves it on the CPU
