import math

import pytest
import torch

from sccountsdiff.benchmark.simulated import MaskedDiffusion
from sccountsdiff.benchmark.simulated.masked import unmask

N = 20_000
LAW = torch.tensor([[0.4, 0.1, 0.0], [0.05, 0.15, 0.3]], dtype=torch.float64)  # of (x_0, x_1), dependent


def exact(x, is_masked, t):
    """Log-probabilities of each entry given the entry that is not masked; both have three classes."""
    law = torch.zeros(3, 3, dtype=torch.float64)
    law[:2] = LAW
    first = torch.where(is_masked[:, 1, None], law.sum(1), law[:, x[:, 1].long()].T)
    second = torch.where(is_masked[:, 0, None], law.sum(0), law[x[:, 0].long()])
    both = torch.stack([first, second], dim=1)
    return (both / both.sum(2, keepdim=True)).log()


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


def test_exact_conditionals_give_the_joint_law(generator):
    # With many steps two entries are hardly ever unmasked in the same one: the chance is about 1 / n_steps.
    n_steps = 500
    x = unmask(exact, torch.zeros(N, 2, dtype=torch.float64), n_steps, generator).long()
    share = torch.bincount(3 * x[:, 0] + x[:, 1], minlength=6).double().view(2, 3) / N
    assert (share - LAW).abs().max() < 4 * math.sqrt(0.25 / N) + 1 / n_steps


def test_in_one_step_entries_are_independent(generator):
    x = unmask(exact, torch.zeros(N, 2, dtype=torch.float64), 1, generator).long()
    share = torch.bincount(3 * x[:, 0] + x[:, 1], minlength=6).double().view(2, 3) / N
    expected = LAW.sum(1, keepdim=True) * LAW.sum(0)
    assert (share - expected).abs().max() < 4 * math.sqrt(0.25 / N)


def test_entries_are_unmasked_at_an_even_pace(generator):
    shown = []

    def watch(x, is_masked, t):
        shown.append((t[0].item(), is_masked))
        return torch.zeros(*x.shape, 2).log_softmax(-1)

    unmask(watch, torch.zeros(N, 1), 4, generator)
    # Of the rows asked about at t, each has its one entry revealed: a quarter of all each time.
    assert [t for t, _ in shown] == [1.0, 0.75, 0.5, 0.25]
    for _, is_masked in shown:
        assert is_masked.all()
        assert abs(len(is_masked) / N - 0.25) < 4 * math.sqrt(0.25 * 0.75 / N)


def test_loss_with_the_true_law_is_its_entropy(generator, monkeypatch):
    """The ELBO of masked diffusion is tight: with exact conditionals its mean is the entropy of the joint law."""
    cells = torch.multinomial(LAW.flatten(), 100_000, replacement=True, generator=generator)
    x0 = torch.stack([cells // 3, cells % 3], dim=1).double()
    model = MaskedDiffusion(x0, n_hidden=2)
    monkeypatch.setattr(model, "log_law", lambda x, m, t: exact(x.clamp_max(2), m, t).clamp_min(-1e6))
    positive = LAW[LAW > 0]
    entropy = -(positive * positive.log()).sum()
    t = (torch.arange(len(x0)) + 0.5).double() / len(x0)
    t = t[torch.randperm(len(x0), generator=generator)]
    # Its terms have heavy tails in 1 / t: the error is taken from ten parts.
    parts = torch.stack([model.loss(x, s, generator) for x, s in zip(x0.chunk(10), t.chunk(10), strict=True)])
    assert abs(parts.mean() - entropy) < 4 * parts.std() / math.sqrt(10)
    assert parts.std() < 0.1


def test_one_class_per_count_and_a_tail_class_for_the_rest(generator):
    counts = torch.tensor([[0.0, 1.0], [2.0, 9.0], [0.0, 30.0]])
    assert MaskedDiffusion(counts, 4).n_classes == 31
    model = MaskedDiffusion(counts, 4, max_classes=4)
    assert model.n_classes == 4
    tail = lambda x, m, t: torch.tensor([0.0, 0.0, 0.0, 1.0]).log().expand(*x.shape, 4)
    model.log_law = tail
    x = model.sample(2000, 5, generator)
    assert set(x.unique().tolist()) == {9.0, 30.0}
    assert abs((x == 9).float().mean() - 0.5) < 4 * 0.5 / math.sqrt(x.numel())


def test_masked_counts_are_not_shown():
    model = MaskedDiffusion(torch.tensor([[0.0, 1.0], [2.0, 3.0]]), n_hidden=8)
    is_masked, t = torch.tensor([[True, False]]), torch.tensor([0.5])
    law = model.log_law(torch.tensor([[0.0, 3.0]]), is_masked, t)
    torch.testing.assert_close(law, model.log_law(torch.tensor([[2.0, 3.0]]), is_masked, t))
    assert not torch.allclose(law, model.log_law(torch.tensor([[0.0, 1.0]]), is_masked, t))
    torch.testing.assert_close(law.exp().sum(-1), torch.ones(1, 2))


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="max_classes"):
        MaskedDiffusion(torch.ones(4, 2), 4, max_classes=1)
    with pytest.raises(ValueError, match="positive count"):
        MaskedDiffusion(torch.zeros(4, 2), 4)
