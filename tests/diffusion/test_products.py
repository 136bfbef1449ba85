"""Products are what torch's own are, to rounding, whoever computes them."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from sccountsdiff.diffusion import products

N, FEATURES, OUTPUTS = 12, 40, 24
needs_onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")


@pytest.fixture(params=[True, False], ids=["oneDNN", "torch"])
def by_either(request, monkeypatch):
    if request.param and not torch.backends.mkldnn.is_available():
        pytest.skip("this torch has no oneDNN")
    monkeypatch.setattr(products, "_USES_ONEDNN", request.param)


def make(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


LAYOUTS = {
    "rows": lambda n, m: make(n, m),
    "columns": lambda n, m: make(m, n).T,
    "part of rows": lambda n, m: make(n, 3 * m)[:, m : 2 * m],
    "part of columns": lambda n, m: make(m, 3 * n)[:, :n].T,
    "a row for all": lambda n, m: make(1, m).expand(n, m),
}


@pytest.mark.parametrize("of_weight", LAYOUTS)
@pytest.mark.parametrize("of_x", LAYOUTS)
def test_any_layout_is_multiplied(of_x, of_weight, by_either):
    x, weight, bias = LAYOUTS[of_x](N, FEATURES), LAYOUTS[of_weight](OUTPUTS, FEATURES), make(OUTPUTS)
    with torch.no_grad():
        found = products.linear(x, weight, bias)
    exact = x.double() @ weight.double().T + bias.double()
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("of_x", LAYOUTS)
def test_derivatives_are_those_of_the_product(of_x, has_bias, by_either):
    values = [LAYOUTS[of_x](N, FEATURES), make(OUTPUTS, FEATURES, seed=1), make(OUTPUTS, seed=2) if has_bias else None]

    def gradients(multiply, dtype):
        given = [None if v is None else v.detach().to(dtype).requires_grad_() for v in values]
        (multiply(*given) * make(N, OUTPUTS, seed=3).to(dtype)).sum().backward()
        return [v.grad.double() for v in given if v is not None]

    for found, exact in zip(gradients(products.linear, torch.float32), gradients(F.linear, torch.double), strict=True):
        torch.testing.assert_close(found, exact, rtol=1e-5, atol=1e-4)


def test_a_gradient_that_is_the_same_everywhere_is_one(by_either):
    weight = make(OUTPUTS, FEATURES).requires_grad_()
    products.linear(make(N, FEATURES), weight).sum().backward()  # of a sum, one number stands for all
    torch.testing.assert_close(weight.grad, make(N, FEATURES).sum(0).expand(OUTPUTS, -1))


@needs_onednn
@pytest.mark.parametrize("case", ["double precision", "no rows", "autocast", "a vector"])
def test_what_onednn_is_not_for_goes_to_torch(case, monkeypatch):
    monkeypatch.setattr(products, "_USES_ONEDNN", True)
    monkeypatch.setattr(products, "_with_onednn", lambda *_: pytest.fail("went to oneDNN"))
    dtype = torch.double if case == "double precision" else torch.float32
    shape = {"no rows": (0, FEATURES), "a vector": (FEATURES,)}.get(case, (N, FEATURES))
    x, weight = make(*shape, dtype=dtype), make(OUTPUTS, FEATURES, dtype=dtype)
    with torch.autocast("cpu", torch.bfloat16, enabled=case == "autocast"):
        assert torch.equal(products.linear(x, weight), F.linear(x, weight))


def test_where_the_product_is_not_as_it_was_torch_is_taken(monkeypatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    monkeypatch.setattr(products, "_processor", lambda: "vendor_id : AuthenticAMD")
    monkeypatch.setattr(products, "_with_onednn", lambda x, weight, bias: x @ weight.T)
    assert not products._onednn_is_faster()  # it left out the bias
    monkeypatch.setattr(products, "_with_onednn", F.linear)
    assert products._onednn_is_faster()
    monkeypatch.setattr(products, "_processor", lambda: "vendor_id : GenuineIntel")
    assert not products._onednn_is_faster()
