"""A small data set, whose cells have one of two types, and a checkpoint as released by scGPT."""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from anndata import AnnData
from torch import nn

from sccountsdiff.benchmark.baselines.scgpt_network import SCGPTTransformer
from sccountsdiff.benchmark.datasets import Dataset


@pytest.fixture(scope="session")
def toy_data():
    rng = np.random.default_rng(0)
    kind = rng.integers(2, size=120)
    counts = rng.poisson(rng.gamma(1, 4, (2, 12))[kind]).astype(np.float32)
    obs = pd.DataFrame({"type": np.array(["a", "b"])[kind]}, index=[f"c{i}" for i in range(120)])
    return Dataset("toy", AnnData(counts, obs=obs), covariates=("type",), label="type")


@pytest.fixture(scope="session")
def without_costs():
    return lambda table: table.drop(columns=["fit_seconds", "impute_seconds", "peak_memory_mb"])


@pytest.fixture
def released(tmp_path_factory):
    """A small checkpoint as released: fused attention, weights that are not needed, rows in any order."""
    sizes = {"embsize": 16, "nheads": 2, "d_hid": 24, "nlayers": 2}
    folder = tmp_path_factory.mktemp("released")
    torch.manual_seed(0)
    vocabulary = {"<pad>": 0, "<cls>": 3} | {f"G{j}": row for j, row in enumerate([7, 1, 9, 2, 8, 4, 5, 6])}
    network = SCGPTTransformer(10, *sizes.values())
    for weight in network.parameters():
        nn.init.normal_(weight, std=0.5)
    nn.init.constant_(network.decoder.fc[4].bias, 25.0)  # answers among the bins
    standard = network.state_dict()
    fused = {name.replace("in_proj_", "Wqkv."): weight for name, weight in standard.items()}
    fused["mvc_decoder.W.weight"] = torch.zeros(16, 16)
    torch.save(fused, folder / "best_model.pt")
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    settings = sizes | {"dropout": 0.2, "pad_value": -2, "mask_value": -1, "n_bins": 51, "training_tasks": "both"}
    settings |= {"input_emb_style": "continuous", "input_style": "binned"}
    (folder / "args.json").write_text(json.dumps(settings))
    cells = AnnData(np.random.default_rng(0).poisson(2, (20, 8)).astype(np.float32))
    cells.var_names = [f"G{j}" for j in range(8)]
    return SimpleNamespace(folder=folder, standard=standard, vocabulary=vocabulary, settings=settings, cells=cells)
