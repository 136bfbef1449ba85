"""What a training step computes can be compiled, as one graph and with the same result."""

import pickle

import pytest
import torch

from sccountsdiff import CountsDiffImputer
from sccountsdiff.diffusion.bernoulli import bernoulli

COMPILING = {"compile": True, "compile_kwargs": {"backend": "aot_eager", "fullgraph": True}}
"""One graph or an error, without a C++ compiler."""


@pytest.fixture(autouse=True)
def _forget_graphs():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def adata(simulate):
    return simulate(96).adata


def _prepared(adata, **settings) -> tuple[CountsDiffImputer, dict]:
    CountsDiffImputer.setup_anndata(adata, categorical_covariate_keys=["cell_type"])
    model = CountsDiffImputer(adata, n_hidden=16, **settings)
    with torch.no_grad():  # untrained, nothing would come out
        for weights in model.module.parameters():
            weights.add_(0.1 * torch.randn(weights.shape, generator=torch.Generator().manual_seed(0)))
    return model, next(iter(model._make_data_loader(adata, batch_size=32)))


@pytest.mark.parametrize("head", ["nb_mixture", "nb", "poisson", "gamma_mixture"])
def test_loss_and_gradients_are_those_of_the_step_as_it_is(adata, head):
    model, batch = _prepared(adata, head=head)
    module = model.module.eval()  # without dropout
    drawn = module.inference(**module.read(batch), generator=torch.Generator().manual_seed(0))

    def loss() -> torch.Tensor:
        return module.loss(batch, drawn, module.generative(**drawn)).loss

    def gradients(step) -> list[torch.Tensor]:
        found = step()
        return [found, *torch.autograd.grad(found, [w for w in module.parameters() if w.requires_grad])]

    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    for found, expected in zip(gradients(compiled), gradients(loss), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)


def test_masks_have_the_share_that_is_asked_for():
    p = torch.tensor([[0.0], [0.25], [0.9]])
    found = torch.compile(bernoulli, backend="aot_eager")((3, 20_000), p, torch.device("cpu")).float().mean(1)
    # Four standard errors of a share of 20,000.
    torch.testing.assert_close(found, p[:, 0], rtol=0, atol=4 * 0.5 / 20_000**0.5)


def test_a_model_is_trained_by_one_graph(adata):
    model, _ = _prepared(adata)
    before = {name: weights.clone() for name, weights in model.module.named_parameters()}
    model.train(max_epochs=2, batch_size=64, plan_kwargs=COMPILING)
    assert any(not torch.equal(weights, before[name]) for name, weights in model.module.named_parameters())
    assert model.history["train_loss"].notna().all(axis=None)
    assert pickle.loads(pickle.dumps(model)).is_trained  # and nothing compiled stays behind, which could not be
    assert model.get_normalized_expression(return_numpy=True).shape == adata.shape


def test_arguments_of_what_is_not_compiled_are_refused_before_training(adata):
    model, _ = _prepared(adata)
    with pytest.raises(ValueError, match="without compile=True"):
        model.train(max_epochs=1, plan_kwargs={"compile_kwargs": {"fullgraph": True}})
    assert not model.is_trained
