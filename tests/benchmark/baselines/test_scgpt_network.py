"""The transformer is that of the original, and reads its released checkpoints."""

import pytest
import torch
from torch import nn

from sccountsdiff.benchmark.baselines.scgpt_network import Checkpoint, SCGPTTransformer


@pytest.mark.parametrize("value_style", ["continuous", "scaling"])
def test_a_hidden_gene_depends_on_observed_ones_only(value_style):
    torch.manual_seed(0)
    network = SCGPTTransformer(6, 8, 2, 8, 2, value_style=value_style).eval()
    genes, values = torch.arange(6)[None], torch.rand(1, 6)
    observed = torch.tensor([[True, True, True, False, False, False]])
    answer = network(genes, values, observed)
    other = values.clone()
    other[0, 3:] = 7.0
    torch.testing.assert_close(network(genes, other, observed), answer)
    fewer = network(genes[:, :4], values[:, :4], observed[:, :4])
    torch.testing.assert_close(fewer, answer[:, :4], msg="depends on what else is asked for")
    other[0, 0] = 7.0
    assert (network(genes, other, observed) - answer)[0, 3:].abs().min() > 1e-5, "does not depend on a observed gene"


def test_layers_are_those_of_torch_where_nothing_is_hidden():
    torch.manual_seed(0)
    network = SCGPTTransformer(6, 8, 2, 12, 2).eval()
    standard = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 12, 0.2, batch_first=True), 2).eval()
    weights = network.transformer_encoder.state_dict()
    standard.load_state_dict(weights)
    genes, values = torch.arange(6).expand(3, 6), torch.rand(3, 6)
    h = standard(network.encoder(genes) + network.value_encoder(values[..., None]))
    answer = network(genes, values, torch.ones(3, 6, dtype=torch.bool))
    torch.testing.assert_close(answer, network.decoder.fc(h).squeeze(-1), rtol=1e-4, atol=1e-5)


def test_a_hidden_gene_is_predicted_as_in_the_original():
    """By hand: flag in place of the value, attention to observed genes and itself, the mixture not projected."""
    torch.manual_seed(0)
    network = SCGPTTransformer(4, 6, 1, 5, 1).eval()
    genes, values, observed = torch.arange(4)[None], torch.rand(1, 4), torch.tensor([[True, True, False, False]])
    layer = network.transformer_encoder["layers"][0]
    gene = network.encoder(genes[0])
    h = torch.cat([gene[:2] + network.value_encoder(values[0, :2, None]), gene[2:3] + network.flag_encoder.weight[1]])
    q, k, v = (h @ layer.self_attn.in_proj_weight.T + layer.self_attn.in_proj_bias).chunk(3, dim=-1)
    mixed = (q[2] @ k.T / 6**0.5).softmax(dim=-1) @ v
    token = layer.norm1(h[2] + mixed)
    token = layer.norm2(token + layer.linear2(layer.linear1(token).relu()))
    torch.testing.assert_close(network(genes, values, observed)[0, 2], network.decoder.fc(token)[0])


@pytest.mark.parametrize("names", ["fused", "standard", "wrapped"])
def test_reads_released_weights(released, names):
    """Fused attention, standard attention and a wrapped model give the same predictions."""
    if names != "fused":
        prefix = "module." if names == "wrapped" else ""
        torch.save({prefix + k: v for k, v in released.standard.items()}, released.folder / "best_model.pt")
    genes = ["G5", "G0", "G2"]
    network = Checkpoint.read(released.folder).transformer(genes).eval()
    sizes = [released.settings[name] for name in ("embsize", "nheads", "d_hid", "nlayers")]
    reference = SCGPTTransformer(10, *sizes).eval()
    reference.load_state_dict(released.standard)
    rows = torch.tensor([[released.vocabulary[gene] for gene in ("<cls>", *genes)]])
    values, observed = torch.tensor([[-2.0, 30.0, 4.0, 0.0]]), torch.tensor([[True, True, True, False]])
    answer = network(torch.arange(4)[None], values, observed)
    torch.testing.assert_close(answer, reference(rows, values, observed))
    assert answer.std() > 0.1, "trivial"
