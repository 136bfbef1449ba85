"""Drawing images from a trained model: in blocks, over all devices, kept on disk as they are finished."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import Queue

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from sccountsdiff.benchmark.images.caching import fingerprint
from sccountsdiff.benchmark.images.model import ImageDiffusion, step_seed
from sccountsdiff.checks import one_of, whole_number
from sccountsdiff.diffusion import NOISED, Attrition, Move, Prediction, get_attrition, guide, reverse_walk, sample
from sccountsdiff.files import replacing, set_aside

PRECISIONS = {"32-true": None, "bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}
"""Number formats of the network's layers in mixed precision, by the names that Lightning gives them."""


def generate(
    model: ImageDiffusion,
    conditions: Tensor | int,
    *,
    guidance: float = 1.0,
    attrition: float | Tensor | Attrition = 0.0,
    n_steps: int | None = None,
    rounding: str = "random",
    batch_size: int = 500,
    seed: int = 0,
    precision: str = "32-true",
    compile: bool = False,
    devices: Sequence[str | torch.device] | None = None,
    together: bool = False,
    folder: str | Path | None = None,
    progress: bool = False,
    on_move: Callable[[Move, Tensor], None] | None = None,
) -> Tensor:
    """Draw images (Algorithm 2).

    They depend on the seed and the settings alone: not on how many devices or processes draw, nor on an interruption.

    Parameters
    ----------
    model
        Trained model.
    conditions
        Class of each image to draw, or rows of attributes. A number draws that many images without a condition.
    guidance
        Guidance strength; 1 is the conditional model, 0 the unconditional one.
    attrition
        A number is eta of the ``rescale`` schedule; or rates per step, or an attrition schedule.
    n_steps
        Reverse steps; by default those of the model's settings, or as many as fit between the schedule's time points.
    rounding
        How births are drawn (:func:`~sccountsdiff.diffusion.draw_births`).
    batch_size
        Images drawn at once. Each such block has a generator of its own, seeded from ``seed`` and its number.
    seed
        Seed.
    precision
        ``"32-true"``, ``"bf16-mixed"`` or ``"16-mixed"``: the number format of the network's layers.
    compile
        Compile the network with :func:`torch.compile`.
    devices
        Where to draw; several draw different blocks at the same time. By default where the model is.
    together
        Share the blocks among all processes of :mod:`torch.distributed`, if there are several; each returns all images.
    folder
        Keeps finished blocks as ``.npy`` files, named by the content of what they depend on: a run that was interrupted
        reads them instead of drawing them again.
    progress
        Show a progress bar.
    on_move
        Called with every move and the state of the block after it.

    Returns
    -------
    uint8 images on the CPU, ``(images, channels, height, width)``, within 0 and the largest value of a pixel.

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.benchmark.images import ImageConfig
    >>> config = ImageConfig("digits", channels=(8, 8))
    >>> model = ImageDiffusion(config, torch.ones(1, 8, 8), torch.ones(1, 8, 8), 16, tuple("0123456789"))
    >>> generate(model, torch.tensor([3, 7]), guidance=2.0, n_steps=2).shape
    torch.Size([2, 1, 8, 8])
    """
    from tqdm.auto import tqdm

    one_of("precision", precision, tuple(PRECISIONS))
    whole_number("batch_size", batch_size)
    if isinstance(conditions, int):
        # No condition in particular: the network is told to leave it out, or takes none.
        whole_number("conditions", conditions)
        shape = (conditions, len(model.names)) if model.multi_label else (conditions,)
        conditions, guidance = torch.zeros(shape, dtype=torch.long), 0.0
    elif not model.config.conditional:
        raise ValueError("This model was trained without conditions: pass the number of images to draw.")
    walk, attrition = reverse_walk(n_steps or default_steps(model)), get_attrition(attrition)
    blocks, places = conditions.split(batch_size), [torch.device(d) for d in devices or [model.device]]
    rank, world = (dist.get_rank(), dist.get_world_size()) if together and dist.is_initialized() else (0, 1)
    settings = (attrition, len(walk), rounding, float(guidance), seed, precision, compile)
    keep = None if folder is None else Path(folder) / fingerprint(model.network.state_dict(), model.schedule, *settings)
    numbers = range(rank, len(blocks), world)
    bar = tqdm(total=len(numbers) * len(walk), desc="Sampling", disable=not progress or rank > 0)
    one_at_a_time = threading.Lock()

    def watch(move: Move, x: Tensor) -> None:
        with one_at_a_time:
            bar.update()
            if on_move is not None:
                on_move(move, x)

    def draw(number: int) -> Tensor:
        wanted = blocks[number]
        shape = (len(wanted), *model.shape)
        file = None if keep is None else keep / f"{number:05d}_{fingerprint(wanted)}.npy"
        if file is not None and (images := _read(file, shape)) is not None:
            with one_at_a_time:
                bar.update(len(walk))
            return images
        with _borrowed(networks) as network, torch.inference_mode():
            device = network.place
            denoise = guide(_bound(network, wanted.to(device), PRECISIONS[precision]), guidance)
            x0 = torch.zeros(shape, device=device)
            x = sample(
                bounded(denoise, model.max_count),
                model.schedule,
                walk,
                x0,
                torch.full_like(x0, NOISED),
                attrition=attrition,
                rounding=rounding,
                generator=torch.Generator(device).manual_seed(step_seed(seed, number)),
                on_move=watch,
            )
            # Only births that are not binomial (`rounding="poisson"`) can overshoot.
            images = x.clamp_max(model.max_count).to(torch.uint8).cpu()
        if file is not None:
            keep.mkdir(parents=True, exist_ok=True)
            with replacing(file) as beside:
                np.save(beside, images.numpy())
        return images

    was_training = model.training
    model.eval()
    networks: Queue[_Placed] = Queue()
    for number, place in enumerate(places):
        networks.put(_Placed(model, place, is_copy=number > 0, compile=compile))
    try:
        with bar:
            if len(places) == 1:
                drawn = {number: draw(number) for number in numbers}
            else:
                with ThreadPoolExecutor(len(places)) as pool:
                    drawn = dict(zip(numbers, pool.map(draw, numbers), strict=True))
    finally:
        model.train(was_training)
    if world > 1:
        everyone: list = [None] * world
        dist.all_gather_object(everyone, drawn)
        drawn = {number: images for part in everyone for number, images in part.items()}
    return torch.cat([drawn[number] for number in range(len(blocks))])


def default_steps(model: ImageDiffusion) -> int:
    """Reverse steps of the model's settings, or as many as fit between the time points of its schedule.

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.benchmark.images import ImageConfig
    >>> config = ImageConfig("digits", channels=(8, 8), schedule="blackout")
    >>> default_steps(ImageDiffusion(config, torch.ones(1, 8, 8), torch.ones(1, 8, 8), 16, tuple("0123456789")))
    999
    """
    n_grid = model.schedule.n_grid
    return min(model.config.n_sampling_steps, model.config.n_sampling_steps if n_grid is None else n_grid - 1)


class _Placed:
    """The network of a model on a device; the model's own where nothing has to be changed about it."""

    def __init__(self, model: ImageDiffusion, place: torch.device, *, is_copy: bool, compile: bool):
        is_elsewhere = place.type != model.device.type or place.index not in (None, model.device.index)
        self.network: nn.Module = model.network
        self.place = place if is_elsewhere else model.device
        if is_copy or is_elsewhere or compile:
            self.network = copy.deepcopy(self.network).to(place).eval()
        if compile:
            self.network.unet.compile()


@contextmanager
def _borrowed(networks: Queue[_Placed]) -> Iterator[_Placed]:
    network = networks.get()
    try:
        yield network
    finally:
        networks.put(network)


def _bound(placed: _Placed, conditions: Tensor, dtype: torch.dtype | None) -> Callable[..., Prediction]:
    """A network with its conditions and number format bound, as :func:`~sccountsdiff.diffusion.guide` wants it."""

    def denoise(x: Tensor, status: Tensor, t: Tensor, null: Tensor) -> Prediction:
        copies = len(x) // len(conditions)  # 2 under guidance
        with torch.autocast(x.device.type, dtype, enabled=dtype is not None):
            return placed.network(x, t, torch.cat([conditions] * copies), null)

    return denoise


def _read(file: Path, shape: tuple[int, ...]) -> Tensor | None:
    """A block that was finished earlier; a damaged one is set aside, and drawn again."""
    if not file.is_file():
        return None
    try:
        images = np.load(file, allow_pickle=False)
        if images.shape != shape or images.dtype != np.uint8:
            raise ValueError(f"it holds {images.dtype} of {images.shape} instead of uint8 of {shape}")
    except (ValueError, OSError, EOFError) as error:
        set_aside(file, error)
        return None
    return torch.from_numpy(images)


def bounded(denoise: Callable[[Tensor, Tensor, Tensor], Prediction], max_count: int):
    """A prediction that leaves no pixel above ``max_count``, guided or not.

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.diffusion import Prediction
    >>> far_too_many = lambda x, status, t: Prediction(torch.full_like(x, 9.0))
    >>> x = torch.tensor([[0.0, 14.0, 16.0]])
    >>> bounded(far_too_many, 16)(x, None, None).mean.round().tolist()
    [[16.0, 2.0, 0.0]]
    """

    def denoise_within(x: Tensor, status: Tensor, t: Tensor) -> Prediction:
        prediction = denoise(x, status, t)
        # A hair less than what fits: exp(log(255)) may be above 255, and random rounding would take it to 256.
        limit = (max_count - x).clamp_min(0).log() - 1e-6
        return prediction.moved_to(prediction.log_mean.minimum(limit))

    return denoise_within
