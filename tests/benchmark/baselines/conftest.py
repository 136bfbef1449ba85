"""Counts on which a method that learns anything beats the mean of the gene, and a checkpoint as released by scGPT."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from anndata import AnnData
from torch import nn

from sccountsdiff.benchmark.baselines import GeneMean
from sccountsdiff.benchmark.baselines.scgpt_network import SCGPTTransformer


@pytest.fixture(scope="session")
def low_rank():
    """200 training cells x 50 genes of rank-3 rates, 60 test cells, and half of their entries as sites."""
    rng = np.random.default_rng(5)
    kind = rng.integers(3, size=260)
    profiles = rng.gamma(0.6, 8.0, (3, 50)) + 0.2
    rates = rng.gamma(6, 1 / 6, (260, 1)) * profiles[kind]
    obs = pd.DataFrame({"type": np.array(["a", "b", "c"])[kind]}, index=[f"c{i}" for i in range(260)])
    var = pd.DataFrame(index=[f"g{j}" for j in range(50)])
    cells = AnnData(rng.poisson(rates).astype(np.float32), obs=obs, var=var)
    train, test = cells[:200].copy(), cells[200:].copy()
    sites = rng.random(test.shape) < 0.5

    def rmse(method, n_samples=1):
        """Error over the sites after training on the training cells; draws are averaged."""
        answer = method.fit(train, covariates="type", seed=0).impute(test, sites, n_samples, seed=0)
        answer = answer.mean(axis=0) if n_samples > 1 else answer
        return float(np.sqrt(np.mean((answer - test.X)[sites] ** 2)))

    return SimpleNamespace(train=train, test=test, sites=sites, rmse=rmse, rmse_of_gene_mean=rmse(GeneMean()))


@pytest.fixture
def released(tmp_path):
    """A small checkpoint as released: fused attention, weights that are not needed, rows in any order."""
    sizes = {"embsize": 16, "nheads": 2, "d_hid": 24, "nlayers": 2}
    torch.manual_seed(0)
    vocabulary = {"<pad>": 0, "<cls>": 3} | {f"G{j}": row for j, row in enumerate([7, 1, 9, 2, 8, 4, 5, 6])}
    network = SCGPTTransformer(10, *sizes.values())
    for weight in network.parameters():
        nn.init.normal_(weight, std=0.5)
    nn.init.constant_(network.decoder.fc[4].bias, 25.0)  # answers among the bins
    standard = network.state_dict()
    fused = {name.replace("in_proj_", "Wqkv."): weight for name, weight in standard.items()}
    fused["mvc_decoder.W.weight"] = torch.zeros(16, 16)
    torch.save(fused, tmp_path / "best_model.pt")
    (tmp_path / "vocab.json").write_text(json.dumps(vocabulary))
    settings = sizes | {"dropout": 0.2, "pad_value": -2, "mask_value": -1, "n_bins": 51, "training_tasks": "both"}
    settings |= {"input_emb_style": "continuous", "input_style": "binned"}
    (tmp_path / "args.json").write_text(json.dumps(settings))
    cells = AnnData(np.random.default_rng(0).poisson(2, (20, 8)).astype(np.float32))
    cells.var_names = [f"G{j}" for j in range(8)]
    return SimpleNamespace(folder=tmp_path, standard=standard, vocabulary=vocabulary, settings=settings, cells=cells)
