"""What runs on the CPU runs on a GPU; skipped where there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from sccountsdiff import CountsDiffImputer

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]
TRAINING = {"enable_progress_bar": False, "accelerator": "gpu", "devices": 1, "batch_size": 32}


@pytest.fixture
def adata(simulate):
    adata = simulate(100).adata
    CountsDiffImputer.setup_anndata(adata, categorical_covariate_keys=["cell_type"], continuous_covariate_keys=["age"])
    return adata


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "16-mixed"])
def test_training_in_any_precision(adata, precision):
    adata.X[0, 0] = 200_000  # beyond half precision
    model = CountsDiffImputer(adata, n_hidden=8, n_layers=1)
    model.train(3, precision=precision, **TRAINING)
    assert model.device.type == "cuda"
    assert np.isfinite(model.history["validation_loss"].to_numpy(float)).all()


def test_a_compiled_step(adata):
    model = CountsDiffImputer(adata, n_hidden=8, n_layers=1)
    model.train(3, plan_kwargs={"compile": True, "compile_kwargs": {"fullgraph": True}}, **TRAINING)
    assert np.isfinite(model.history["validation_loss"].to_numpy(float)).all()


@pytest.mark.parametrize(
    "head", ["nb_mixture", "nb", "gamma_mixture", "truncated_nb", "truncated_mixture", "poisson", "softplus"]
)
def test_every_call(adata, head, tmp_path):
    model = CountsDiffImputer(adata, head=head, n_hidden=8, n_layers=1)
    model.train(1, **TRAINING)
    options = {"batch_size": 32, "silent": True}
    assert model.impute(n_samples=2, n_steps=2, **options).shape == adata.shape
    assert model.denoise(**options).shape == adata.shape
    assert model.generate(10, **options).n_obs == 10
    assert model.posterior_predictive_sample(n_folds=2, n_steps=2, **options).shape == adata.shape
    assert np.isfinite(model.get_normalized_expression(return_numpy=True, **options)).all()
    model.save(tmp_path / "model")
    loaded = CountsDiffImputer.load(tmp_path / "model", adata=adata, accelerator="cpu")
    assert loaded.device.type == "cpu" and loaded.impute(n_samples=1, n_steps=2, **options).shape == adata.shape


def test_the_moving_average_is_beside_the_weights(adata, train):
    model = train(adata, 1, **TRAINING)
    (average,) = [callback for callback in model.trainer.callbacks if hasattr(callback, "best_loss")]
    assert {value.device.type for value in average._average_model.parameters()} == {"cuda"}


def test_no_step_waits_for_the_host(adata, train):
    model = train(adata, 1, **TRAINING)
    module = model.module.train()
    optimizer = torch.optim.AdamW(module.parameters(), fused=True)
    tensors = {"X": torch.poisson(torch.ones(16, adata.n_vars)).cuda()}
    tensors["extra_categorical_covs"] = torch.zeros(16, 1, dtype=torch.long, device="cuda")
    tensors["extra_continuous_covs"] = torch.zeros(16, 1, dtype=torch.float64, device="cuda")
    for mode in ("default", "error"):  # the first step makes the state of the optimiser
        torch.cuda.set_sync_debug_mode(mode)
        try:
            module(tensors)[2].loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        finally:
            torch.cuda.set_sync_debug_mode("default")


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there are not two GPUs")
def test_two_gpus_train_one_model(tmp_path):
    script = Path(__file__).with_name("two_processes.py")
    command = [sys.executable, str(script), "ddp", str(tmp_path), "gpu"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=os.environ, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert {path.name for path in tmp_path.iterdir()} == {"rank0.json", "rank1.json", "model"}
