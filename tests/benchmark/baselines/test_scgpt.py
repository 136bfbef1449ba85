"""scGPT learns from scratch, and imputes from released weights."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from anndata import AnnData
from torch.nn.attention import SDPBackend, sdpa_kernel

from sccountsdiff.benchmark.baselines.base import Cells
from sccountsdiff.benchmark.baselines.masking import hide
from sccountsdiff.benchmark.baselines.scgpt import SCGPT, SCGPTPretrained
from sccountsdiff.benchmark.baselines.torch_training import Batch

SMALL = {"n_hidden": 8, "n_heads": 2, "n_layers": 1, "max_epochs": 1}


def as_cells(counts, observed=None):
    counts = np.asarray(counts, dtype=np.float32)
    observed = np.ones(counts.shape, dtype=bool) if observed is None else observed
    return Cells(counts, observed, pd.DataFrame(index=range(len(counts))))


def as_batch(counts, observed=None):
    counts = torch.as_tensor(counts)
    observed = torch.ones(counts.shape, dtype=torch.bool) if observed is None else observed
    n = len(counts)
    nothing = torch.zeros(n, 0, dtype=torch.long)
    return Batch(counts, observed, nothing, nothing.float(), torch.zeros(n, dtype=torch.bool))


@pytest.fixture(scope="module")
def counts():
    return np.random.default_rng(0).poisson(np.random.default_rng(1).gamma(0.5, 4, (30, 12))).astype(np.float32)


def test_learns(low_rank):
    method = SCGPT(n_hidden=32, n_layers=2, batch_size=32, n_tokens=40, max_steps=100, n_warmup_steps=20)
    assert low_rank.rmse(method) < 0.9 * low_rank.rmse_of_gene_mean


def test_attention_has_a_fast_kernel(counts):
    network = SCGPT(n_hidden=8).untrained(as_cells(counts)).train()
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]):
        network.loss(as_batch(counts)).backward()


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


def test_entries_that_are_missing_are_neither_input_nor_target(counts):
    observed = np.random.default_rng(2).random(counts.shape) < 0.7
    network = SCGPT(n_hidden=8).untrained(as_cells(np.where(observed, counts, 0), observed)).eval()
    losses = []
    for filler in (0.0, 50.0):
        torch.manual_seed(0)
        x = torch.as_tensor(np.where(observed, counts, np.float32(filler)))
        losses.append(network.loss(as_batch(x, torch.as_tensor(observed))).item())
    assert losses[0] == losses[1]
    cells = AnnData(counts)
    method = SCGPT(**SMALL).fit(cells, observed=observed)
    assert np.isfinite(method.impute(cells, ~observed, observed=observed)).all()


def test_loss_is_the_error_at_hidden_genes_at_the_depth_of_observed_ones(counts):
    network = SCGPT(n_hidden=8).untrained(as_cells(counts))
    network.transformer.forward = lambda genes, values, observed, label: torch.zeros(genes.shape)
    x, observed = torch.as_tensor(counts), torch.ones(counts.shape, dtype=torch.bool)
    torch.manual_seed(0)
    loss = network.loss(as_batch(x, observed))
    torch.manual_seed(0)
    hidden = hide(observed, network.hidden_shares)
    torch.testing.assert_close(loss, network.values(x, ~hidden)[hidden].square().mean())


def test_a_training_step_has_the_loss_of_the_authors_script(counts):
    """Written there with counts per 10,000 of what is shown, 1 at least.

    Ours are per what the shown genes are expected to add up to, with 10 counts added to both: a cell of which hardly
    anything is shown has the depth of others.
    """
    network = SCGPT(n_hidden=8, n_tokens=None).untrained(as_cells(counts)).eval()
    hidden = np.random.default_rng(4).random(counts.shape) < 0.4
    predicted = np.random.default_rng(5).random(counts.shape).astype(np.float32)
    # The tokens of a cell are all of its genes, those that are shown first: each gets the prediction of its gene.
    network.transformer.forward = lambda genes, values, shown, label: torch.as_tensor(
        np.take_along_axis(np.pad(predicted, ((0, 0), (1, 0))), genes.numpy(), axis=1)
    )
    network.hide = lambda batch: torch.as_tensor(hidden)
    retained, per = (10 + np.where(hidden, 0, shown).sum(1, keepdims=True) for shown in (counts, counts.mean(0)))
    target = np.log1p(per * counts / retained)
    theirs = ((predicted - target)[hidden] ** 2).mean()
    np.testing.assert_allclose(network.loss(as_batch(counts)).item(), theirs, rtol=1e-4)


def test_the_label_does_what_the_authors_decoder_does_with_it(counts):
    """There the decoder's first layer reads the token and the label side by side; a sum of two products is the same."""
    network = SCGPT(n_hidden=8).untrained(as_cells(counts)).eval()
    decoder = network.transformer.decoder.fc
    first = torch.nn.Linear(16, 8)
    h, label = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        first.weight[:, :8], first.bias[:] = decoder[0].weight, decoder[0].bias
        first.weight[:, 8:] = decoder[0].weight  # what a vector adds before the layer
        theirs = decoder[1:](first(torch.cat([h, label], dim=1)))
        torch.testing.assert_close(decoder(h + label), theirs)


def test_covariates_enter_as_one_label_and_unseen_combinations_as_none(low_rank):
    train, test = low_rank.train.copy(), low_rank.test[:6].copy()
    train.obs["batch"] = np.where(np.arange(train.n_obs) % 2, "x", "y")
    train.obs.loc[train.obs["type"] == train.obs["type"].iloc[0], "batch"] = "x"  # one combination is missing
    method = SCGPT(**SMALL | {"n_tokens": None}).fit(train, covariates=["type", "batch"])
    label = method.network.label
    assert len(label) == len(train.obs[["type", "batch"]].drop_duplicates())
    torch.nn.init.normal_(label.vectors.weight)
    sites = np.ones(test.shape, dtype=bool)
    sites[:, :10] = False
    answers = {}
    for kind, batch in ((train.obs["type"].iloc[0], "x"), (train.obs["type"].iloc[0], "y"), ("new", "x")):
        test.obs["type"], test.obs["batch"] = str(kind), batch
        answers[str(kind), batch] = method.impute(test, sites)
    seen, missing, unknown = answers.values()
    assert np.array_equal(missing, unknown) and not np.allclose(seen, missing)
