"""scGPT: learns from scratch, and reads released checkpoints as they are meant."""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from anndata import AnnData
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from sccountsdiff.benchmark.baselines.base import Cells
from sccountsdiff.benchmark.baselines.masking import hide, pack
from sccountsdiff.benchmark.baselines.scgpt import SCGPT, SCGPTPretrained
from sccountsdiff.benchmark.baselines.scgpt_network import Checkpoint, SCGPTTransformer
from sccountsdiff.benchmark.baselines.torch_training import Batch
from sccountsdiff.benchmark.baselines.value_transforms import BinnedValues, LogValues

SMALL = {"n_hidden": 8, "n_heads": 2, "n_layers": 1, "max_epochs": 1}
SIZES = {"embsize": 16, "nheads": 2, "d_hid": 24, "nlayers": 2}


def as_cells(counts, observed=None):
    counts = np.asarray(counts, dtype=np.float32)
    observed = np.ones(counts.shape, dtype=bool) if observed is None else observed
    return Cells(counts, observed, pd.DataFrame(index=range(len(counts))))


@pytest.fixture(scope="module")
def counts():
    return np.random.default_rng(0).poisson(np.random.default_rng(1).gamma(0.5, 4, (30, 12))).astype(np.float32)


@pytest.fixture
def released(tmp_path):
    """A small checkpoint as released: fused attention, weights that are not needed, rows in any order."""
    torch.manual_seed(0)
    vocabulary = {"<pad>": 0, "<cls>": 3} | {f"G{j}": row for j, row in enumerate([7, 1, 9, 2, 8, 4, 5, 6])}
    network = SCGPTTransformer(10, *SIZES.values())
    for weight in network.parameters():
        nn.init.normal_(weight, std=0.5)
    nn.init.constant_(network.decoder["fc"][4].bias, 25.0)  # answers among the bins
    standard = network.state_dict()
    fused = {name.replace("in_proj_", "Wqkv."): weight for name, weight in standard.items()}
    fused["mvc_decoder.W.weight"] = torch.zeros(16, 16)
    torch.save(fused, tmp_path / "best_model.pt")
    (tmp_path / "vocab.json").write_text(json.dumps(vocabulary))
    settings = SIZES | {"dropout": 0.2, "pad_value": -2, "mask_value": -1, "n_bins": 51, "training_tasks": "both"}
    settings |= {"input_emb_style": "continuous", "input_style": "binned"}
    (tmp_path / "args.json").write_text(json.dumps(settings))
    cells = AnnData(np.random.default_rng(0).poisson(2, (20, 8)).astype(np.float32))
    cells.var_names = [f"G{j}" for j in range(8)]
    return SimpleNamespace(folder=tmp_path, standard=standard, vocabulary=vocabulary, settings=settings, cells=cells)


def test_learns(low_rank):
    method = SCGPT(n_hidden=32, n_layers=2, batch_size=32, n_tokens=40, max_steps=100, n_warmup_steps=20)
    assert low_rank.rmse(method) < 0.9 * low_rank.rmse_of_gene_mean


@pytest.mark.parametrize("value_style", ["continuous", "scaling"])
def test_a_hidden_gene_depends_on_visible_ones_only(value_style):
    torch.manual_seed(0)
    network = SCGPTTransformer(6, 8, 2, 8, 2, value_style=value_style).eval()
    genes, values = torch.arange(6)[None], torch.rand(1, 6)
    visible = torch.tensor([[True, True, True, False, False, False]])
    answer = network(genes, values, visible)
    other = values.clone()
    other[0, 3:] = 7.0
    torch.testing.assert_close(network(genes, other, visible), answer)
    fewer = network(genes[:, :4], values[:, :4], visible[:, :4])
    torch.testing.assert_close(fewer, answer[:, :4], msg="depends on what else is asked for")
    other[0, 0] = 7.0
    assert (network(genes, other, visible) - answer)[0, 3:].abs().min() > 1e-5, "does not depend on a visible gene"


def test_layers_are_those_of_torch_where_nothing_is_hidden():
    torch.manual_seed(0)
    network = SCGPTTransformer(6, 8, 2, 12, 2).eval()
    standard = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 12, 0.2, batch_first=True), 2).eval()
    weights = network.transformer_encoder.state_dict()
    standard.load_state_dict(weights)
    genes, values = torch.arange(6).expand(3, 6), torch.rand(3, 6)
    h = standard(network.encoder(genes) + network.value_encoder(values[..., None]))
    answer = network(genes, values, torch.ones(3, 6, dtype=torch.bool))
    torch.testing.assert_close(answer, network.decoder["fc"](h).squeeze(-1), rtol=1e-4, atol=1e-5)


def test_a_hidden_gene_is_predicted_as_in_the_original():
    """By hand: flag in place of the value, attention to visible genes and itself, the mixture not projected."""
    torch.manual_seed(0)
    network = SCGPTTransformer(4, 6, 1, 5, 1).eval()
    genes, values, visible = torch.arange(4)[None], torch.rand(1, 4), torch.tensor([[True, True, False, False]])
    layer = network.transformer_encoder["layers"][0]
    gene = network.encoder(genes[0])
    h = torch.cat([gene[:2] + network.value_encoder(values[0, :2, None]), gene[2:3] + network.flag_encoder.weight[1]])
    q, k, v = (h @ layer.self_attn.in_proj_weight.T + layer.self_attn.in_proj_bias).chunk(3, dim=-1)
    mixed = (q[2] @ k.T / 6**0.5).softmax(dim=-1) @ v
    token = layer.norm1(h[2] + mixed)
    token = layer.norm2(token + layer.linear2(layer.linear1(token).relu()))
    torch.testing.assert_close(network(genes, values, visible)[0, 2], network.decoder["fc"](token)[0])


def test_attention_has_a_fast_kernel(counts):
    network = SCGPT(n_hidden=8)._network(as_cells(counts)).train()
    batch = Batch(torch.as_tensor(counts), torch.ones(counts.shape, dtype=torch.bool), None, None, None)
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]):
        network.loss(batch).backward()


def test_hidden_values_do_not_leak_into_the_input(counts):
    """Not even through the depth of the cell or the edges of its bins."""
    x = torch.as_tensor(counts)
    visible = torch.rand(x.shape, generator=torch.Generator().manual_seed(0)) < 0.5
    other = torch.where(visible, x, 100.0)
    for values in (LogValues(as_cells(counts)), BinnedValues(as_cells(counts), 51)):
        torch.testing.assert_close(values(x, visible)[visible], values(other, visible)[visible])
        predicted = torch.rand(x.shape)
        torch.testing.assert_close(values.decode(predicted, x, visible), values.decode(predicted, other, visible))


def test_log_values_are_undone_at_the_depth_of_the_visible(counts):
    x, visible = torch.as_tensor(counts), torch.ones(counts.shape, dtype=torch.bool)
    values = LogValues(as_cells(counts))
    torch.testing.assert_close(values.decode(values(x, visible), x, visible), x, rtol=1e-4, atol=1e-4)
    visible[:, 6:] = False
    deeper = torch.where(visible, 3 * x, x)
    ratio = values.depth(deeper, visible) / values.depth(x, visible)
    assert (ratio > 1).float().mean() > 0.9
    assert (values.decode(torch.full_like(x, 1e3), x, visible) < 1e6).all(), "a wild prediction explodes"


def test_bins_are_those_of_the_original(counts):
    """Edges are quantiles of the non-zero counts; ties lie in the middle of where the original may put them."""
    x, n_bins = torch.as_tensor(counts), 11
    values = BinnedValues(as_cells(counts), n_bins)
    visible = torch.ones(counts.shape, dtype=torch.bool)
    bins = values(x, visible).numpy()
    assert (bins[counts == 0] == 0).all()
    for row, ours in zip(counts, bins, strict=True):
        positive = row[row > 0]
        edges = np.quantile(positive, np.linspace(0, 1, n_bins - 1)).astype(np.float32)
        last, first = np.digitize(positive, edges), np.digitize(positive, edges, right=True) + 1
        np.testing.assert_allclose(ours[row > 0], (np.minimum(first, last) + last) / 2)
        np.testing.assert_allclose(values.edges(torch.as_tensor(row)[None], visible[:1])[0, 1:], edges, rtol=1e-5)
    back = values.decode(torch.as_tensor(bins), x, visible).numpy()
    assert (np.diff(np.take_along_axis(back, counts.argsort(axis=1), axis=1), axis=1) >= -1e-4).all()
    np.testing.assert_allclose(back.max(axis=1), counts.max(axis=1), rtol=1e-5)


def test_packing_and_hiding():
    torch.manual_seed(0)
    wanted = torch.rand(500, 40) < 0.3
    index, valid = pack(wanted)
    assert valid.sum(dim=1).equal(wanted.sum(dim=1)) and index.shape[1] == wanted.sum(dim=1).max()
    assert torch.zeros_like(wanted).scatter(1, index, valid).equal(wanted)
    index, valid = pack(torch.ones(500, 40, dtype=torch.bool), n_max=10)
    chosen = torch.zeros(500, 40).scatter(1, index, valid.float())
    assert (chosen.sum(dim=1) == 10).all()
    assert (chosen.mean(dim=0) - 0.25).abs().max() < 4.5 * np.sqrt(0.25 * 0.75 / 500), "not by chance"
    observed = torch.rand(4000, 20) < 0.8
    hidden = hide(observed, torch.tensor([0.2, 0.6]))
    assert not (hidden & ~observed).any()
    assert float(hidden.sum() / observed.sum()) == pytest.approx(0.4, abs=4.5 * 0.25 / np.sqrt(4000))


@pytest.mark.parametrize("names", ["fused", "standard", "wrapped"])
def test_reads_released_weights(released, names):
    """Fused attention, standard attention and a wrapped model give the same predictions."""
    if names != "fused":
        prefix = "module." if names == "wrapped" else ""
        torch.save({prefix + k: v for k, v in released.standard.items()}, released.folder / "best_model.pt")
    genes = ["G5", "G0", "G2"]
    network = Checkpoint.read(released.folder).transformer(genes).eval()
    reference = SCGPTTransformer(10, *SIZES.values()).eval()
    reference.load_state_dict(released.standard)
    rows = torch.tensor([[released.vocabulary[gene] for gene in ("<cls>", *genes)]])
    values, visible = torch.tensor([[-2.0, 30.0, 4.0, 0.0]]), torch.tensor([[True, True, True, False]])
    answer = network(torch.arange(4)[None], values, visible)
    torch.testing.assert_close(answer, reference(rows, values, visible))
    assert answer.std() > 0.1, "trivial"


def test_pretrained_imputes_without_training(released):
    sites = np.random.default_rng(1).random((20, 8)) < 0.4
    method = SCGPTPretrained(weights_path=released.folder).fit(released.cells)
    before = {name: weight.clone() for name, weight in method.network.state_dict().items()}
    answer = method.impute(released.cells, sites)
    shown = np.where(sites, 0, released.cells.X)
    expressed = (released.cells.X > 0).mean(axis=0)
    assert (answer[sites] <= (shown.max(axis=1, keepdims=True) * expressed)[sites] + 1e-4).all(), "outside of the bins"
    assert answer[sites].std() > 0
    whole = released.cells.copy()
    whole.X = whole.X.astype(np.int64)
    again = SCGPTPretrained(weights_path=released.folder).fit(whole).impute(whole, sites)
    np.testing.assert_allclose(again[sites], answer[sites], rtol=1e-5)
    # A zero says nothing to a model that never saw one: as good as not observed.
    zero = (released.cells.X == 0) & ~sites
    np.testing.assert_allclose(method.impute(released.cells, sites | zero)[sites], answer[sites], rtol=1e-4)
    tuned = SCGPTPretrained(weights_path=released.folder, max_epochs=2, batch_size=8, lr=1e-2, n_warmup_steps=1)
    tuned.fit(released.cells)
    assert len(tuned.history) == 2
    assert not tuned.network.state_dict()["transformer.decoder.fc.0.weight"].equal(
        before["transformer.decoder.fc.0.weight"]
    )
    assert np.isfinite(tuned.impute(released.cells, sites)).all()


def test_genes_that_the_weights_do_not_know(released):
    cells = released.cells.copy()
    cells.var_names = ["other", *cells.var_names[1:]]
    with pytest.raises(ValueError, match=r"1 of 8 genes are not in the vocabulary.*\['other'\]"):
        SCGPTPretrained(weights_path=released.folder).fit(cells)
    sites = np.zeros(cells.shape, dtype=bool)
    sites[:, :2] = True
    method = SCGPTPretrained(weights_path=released.folder, unknown_genes="mean").fit(cells)
    filled = method.impute(cells, sites)[:, 0]
    rest = cells.X[:, 2:]
    depth = (rest.sum(axis=1) + 10) / (rest.mean(axis=0).sum() + 10)
    np.testing.assert_allclose(filled, cells.X[:, 0].mean() * depth, rtol=1e-5)
    cells.var_names = [f"ENSG{j}" for j in range(8)]
    with pytest.raises(ValueError, match="8 of 8 genes .* names like"):
        SCGPTPretrained(weights_path=released.folder, unknown_genes="mean").fit(cells)


def test_bad_checkpoints_are_named(released):
    def fit():
        SCGPTPretrained(weights_path=released.folder).fit(released.cells)

    with pytest.raises(ValueError, match="needs weights"):
        SCGPTPretrained().fit(released.cells)
    with pytest.raises(ValueError, match="unknown_genes"):
        SCGPTPretrained(unknown_genes="drop")
    weights = dict(released.standard)
    del weights["flag_encoder.weight"]
    torch.save(weights, released.folder / "best_model.pt")
    with pytest.raises(KeyError, match=r"best_model.pt lacks 1 weights .*'flag_encoder.weight'"):
        fit()
    torch.save(released.standard, released.folder / "best_model.pt")
    vocabulary = released.folder / "vocab.json"
    vocabulary.write_text(json.dumps(released.vocabulary | {"G0": 10}))
    with pytest.raises(ValueError, match="numbers genes up to 10, but best_model.pt has 10"):
        fit()
    vocabulary.write_text(json.dumps({"G0": 1}))
    with pytest.raises(ValueError, match="7 of 8 genes"):
        fit()
    for change, message in (
        ({"training_tasks": "pcpt"}, "training_tasks='pcpt'"),
        ({"input_emb_style": "category"}, "input_emb_style='category'"),
    ):
        (released.folder / "args.json").write_text(json.dumps(released.settings | change))
        with pytest.raises(ValueError, match=message):
            fit()
    (released.folder / "args.json").write_text(json.dumps({"embsize": 16}))
    with pytest.raises(KeyError, match="nheads"):
        fit()
    (released.folder / "args.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"\['args.json'\] not found"):
        fit()


def test_entries_that_are_not_believed_are_neither_input_nor_target(counts):
    observed = np.random.default_rng(2).random(counts.shape) < 0.7
    network = SCGPT(n_hidden=8)._network(as_cells(np.where(observed, counts, 0), observed)).eval()
    losses = []
    for filler in (0.0, 50.0):
        torch.manual_seed(0)
        x = torch.as_tensor(np.where(observed, counts, np.float32(filler)))
        losses.append(network.loss(Batch(x, torch.as_tensor(observed), None, None, None)).item())
    assert losses[0] == losses[1]
    cells = AnnData(counts)
    method = SCGPT(**SMALL).fit(cells, observed=observed)
    assert np.isfinite(method.impute(cells, ~observed, observed=observed)).all()


def test_loss_is_the_error_at_hidden_genes_at_the_depth_of_visible_ones(counts):
    network = SCGPT(n_hidden=8)._network(as_cells(counts))
    network.transformer.forward = lambda genes, values, visible: torch.zeros(genes.shape)
    x, observed = torch.as_tensor(counts), torch.ones(counts.shape, dtype=torch.bool)
    torch.manual_seed(0)
    loss = network.loss(Batch(x, observed, None, None, None))
    torch.manual_seed(0)
    hidden = hide(observed, network.hidden_shares)
    torch.testing.assert_close(loss, network.values(x, ~hidden)[hidden].square().mean())


def test_budget_of_steps_in_whole_epochs(counts):
    method = SCGPT(**SMALL | {"max_epochs": 50, "batch_size": 10, "max_steps": 7}).fit(AnnData(counts))
    assert len(method.history) == 3, "30 cells are 3 steps of 10"
    assert method.max_epochs == 50
    unbounded = SCGPT(**SMALL | {"max_epochs": 5, "batch_size": 10, "max_steps": None, "patience": None})
    assert len(unbounded.fit(AnnData(counts)).history) == 5
    with pytest.raises(ValueError, match="hidden_shares"):
        SCGPT(hidden_shares=(0.5, 1.0))
