"""The transformer is that of the original, and reads its released checkpoints."""

import numpy as np
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


def normalised(x, layer):
    """Layer normalisation, in numpy."""
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * array(layer.weight) + array(layer.bias)


def array(tensor):
    return tensor.detach().numpy().astype(np.float64)


def dense(x, layer):
    return x @ array(layer.weight).T + array(layer.bias)


def test_all_modules_are_those_of_the_original():
    """Written in numpy from what the public modules compute: two layers of two heads, observed and hidden genes.

    A gene's vector is normalised. A value goes through a rectified layer, another layer and a normalisation, and is added;
    a hidden gene has the second flag instead. Observed genes attend to observed ones, and what they mix is projected; a
    hidden one attends to those and to itself, and what it mixes is not. Both are normalised after each residual sum. The
    decoder has two leaky layers.
    """
    torch.manual_seed(1)
    n_heads, network = 2, SCGPTTransformer(7, 8, 2, 12, 2).eval()
    genes, values = np.array([0, 3, 5, 1, 6]), np.array([0.0, 2.5, 0.3, 9.0, 9.0])
    shown = np.array([True, True, True, False, False])
    h = normalised(array(network.encoder.embedding.weight)[genes], network.encoder.enc_norm)
    encoder = network.value_encoder
    of_value = normalised(dense(np.maximum(dense(values[:, None], encoder.linear1), 0), encoder.linear2), encoder.norm)
    h = h + np.where(shown[:, None], of_value, array(network.flag_encoder.weight)[1])
    for layer in network.transformer_encoder["layers"]:
        attention = layer.self_attn
        qkv = h @ array(attention.in_proj_weight).T + array(attention.in_proj_bias)
        q, k, v = qkv.reshape(5, 3, n_heads, 4).transpose(1, 2, 0, 3)
        scores = np.where(shown | np.eye(5, dtype=bool), q @ k.transpose(0, 2, 1) / np.sqrt(4), -np.inf)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (shares / shares.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(5, 8)
        mixed = np.where(shown[:, None], dense(mixed, attention.out_proj), mixed)
        h = normalised(h + mixed, layer.norm1)
        h = normalised(h + dense(np.maximum(dense(h, layer.linear1), 0), layer.linear2), layer.norm2)
    for number in (0, 2):
        h = dense(h, network.decoder.fc[number])
        h = np.where(h > 0, h, 0.01 * h)
    theirs = dense(h, network.decoder.fc[4])[:, 0]
    ours = network(*(torch.as_tensor(x)[None] for x in (genes, values.astype(np.float32), shown)))
    np.testing.assert_allclose(ours.detach()[0], theirs, rtol=1e-4, atol=1e-5)


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
