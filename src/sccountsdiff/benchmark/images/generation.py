"""Drawing images from a trained model."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sccountsdiff.benchmark.images.model import ImageDiffusion, step_seed
from sccountsdiff.diffusion import NOISED, Attrition, Move, Prediction, get_attrition, guide, reverse_walk, sample


@torch.inference_mode()
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
    progress: bool = False,
    on_move: Callable[[Move, Tensor], None] | None = None,
) -> Tensor:
    """Draw images (Algorithm 2).

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
        Reverse steps; by default those of the model's settings.
    rounding
        How births are drawn (:func:`~sccountsdiff.diffusion.draw_births`).
    batch_size
        Images drawn at once. Each such block has a generator of its own, seeded from ``seed`` and its number.
    seed
        Seed.
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

    if isinstance(conditions, int):
        # No condition in particular: the network is told to leave it out, or takes none.
        shape = (conditions, len(model.names)) if model.multi_label else (conditions,)
        conditions, guidance = torch.zeros(shape, dtype=torch.long), 0.0
    elif not model.config.conditional:
        raise ValueError("This model was trained without conditions: pass the number of images to draw.")
    walk = reverse_walk(n_steps or model.config.n_sampling_steps)
    was_training = model.training
    model.eval()
    drawn, blocks = [], conditions.to(model.device).split(batch_size)
    with tqdm(total=len(blocks) * len(walk), desc="Sampling", disable=not progress) as bar:

        def watch(move: Move, x: Tensor) -> None:
            bar.update()
            if on_move is not None:
                on_move(move, x)

        options = {"attrition": get_attrition(attrition), "rounding": rounding, "on_move": watch}
        for number, wanted in enumerate(blocks):
            x0 = torch.zeros((len(wanted), *model.shape), device=model.device)
            denoise = bounded(guide(model.denoise_with(wanted), guidance), model.max_count)
            generator = torch.Generator(model.device).manual_seed(step_seed(seed, number))
            x = sample(denoise, model.schedule, walk, x0, torch.full_like(x0, NOISED), generator=generator, **options)
            # Only births that are not binomial (`rounding="poisson"`) can overshoot.
            drawn.append(x.clamp_max(model.max_count).to(torch.uint8).cpu())
    model.train(was_training)
    return torch.cat(drawn)


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
