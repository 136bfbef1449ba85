"""Three small models and what they draw: run as a script, it saves their weights and draws.

Make the file anew only where a change is meant to change draws, and say so in the changelog.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import scipy.sparse as sp
import scvi
from anndata import AnnData

from sccountsdiff import CountsDiffImputer

FILE = Path(__file__).with_name("draws.npz")
N_CELLS, N_GENES = 90, 12


def make_data() -> AnnData:
    """Counts with types, ages, a mask and NaN."""
    rng = np.random.default_rng(7)
    types = rng.integers(3, size=N_CELLS)
    rates = rng.gamma(0.7, 3.0, (3, N_GENES))[types] * rng.gamma(5, 0.2, (N_CELLS, 1))
    counts = rng.poisson(rates).astype(np.float32)
    obs = pd.DataFrame(
        {"cell_type": pd.Categorical(np.array(["B", "NK", "T"])[types]), "age": rng.normal(size=N_CELLS)},
        index=[f"cell{i}" for i in range(N_CELLS)],
    )
    adata = AnnData(sp.csr_matrix(counts), obs=obs, var=pd.DataFrame(index=[f"gene{j}" for j in range(N_GENES)]))
    adata.layers["observed"] = rng.random(counts.shape) > 0.2
    return adata


def _covariates() -> CountsDiffImputer:
    adata = make_data()
    adata.X = np.where(np.random.default_rng(8).random(adata.shape) < 0.05, np.nan, adata.X.toarray())
    CountsDiffImputer.setup_anndata(
        adata,
        categorical_covariate_keys=["cell_type"],
        continuous_covariate_keys=["age"],
        mask_layer="observed",
    )
    return CountsDiffImputer(adata, n_hidden=8, n_layers=1)


def _plain() -> CountsDiffImputer:
    adata = make_data()
    CountsDiffImputer.setup_anndata(adata)
    return CountsDiffImputer(adata, head="poisson", schedule="fisher", n_hidden=8, n_layers=2)


def _paper() -> CountsDiffImputer:
    adata = make_data()
    CountsDiffImputer.setup_anndata(adata, labels_key="cell_type", zeros="missing")
    return CountsDiffImputer(
        adata,
        backbone="transformer",
        head="softplus",
        schedule="blackout",
        observed_training=False,
        n_hidden=8,
        n_layers=1,
        n_heads=2,
    )


MODELS = {"covariates": _covariates, "plain": _plain, "paper": _paper}


def make_model(name: str) -> CountsDiffImputer:
    """One of the models, not trained."""
    scvi.settings.seed = 0
    return MODELS[name]()


def train_model(name: str) -> CountsDiffImputer:
    """One of the models after a short training."""
    model = make_model(name)
    model.train(
        4, batch_size=30, accelerator="cpu", enable_progress_bar=False, plan_kwargs={"lr": 0.01}, early_stopping=False
    )
    return model


def history_of(model: CountsDiffImputer) -> np.ndarray:
    """Training and validation losses of all epochs."""
    return np.concatenate([model.history[key].to_numpy(dtype=float).ravel() for key in sorted(model.history)])


def results_of(name: str, model: CountsDiffImputer) -> dict[str, np.ndarray]:
    """Draws (integers) and expectations of a trained model."""
    known = "noised" if name == "paper" else "clean"
    common = {"batch_size": 32, "silent": True}
    sites = np.random.default_rng(9).random((N_CELLS, N_GENES)) < 0.3
    guided = {"guidance": 2.0} if name == "covariates" else {}
    sampled = common | {"known": known, "seed": 3}
    one_pass = {"known": known, "n_steps": 1 if known == "clean" else 5, "final": "mean"}
    covariates = {
        "covariates": {"cell_type": "NK", "age": 0.5},
        "plain": None,
        "paper": {"cell_type": "T"},
    }[name]
    draws = {
        "sites": model.impute(
            sites=sites,
            n_samples=2,
            return_mean=False,
            key_added=None,
            n_resamples=2,
            jump_length=3,
            **guided,
            **sampled,
        ),
        "default": model.impute(n_samples=2, return_mean=False, key_added=None, n_steps=4, **sampled),
        "rounded": model.impute(
            sites=sites, n_samples=1, return_mean=False, key_added=None, rounding="poisson", attrition=0.2, **sampled
        ),
        "predictive": np.moveaxis(
            model.posterior_predictive_sample(n_samples=2, n_folds=3, n_steps=3, **sampled).todense(), -1, 0
        ),
        "generated": model.generate(40, covariates, n_steps=6, seed=5, **common).X.toarray(),
    }
    expected = {
        "mean": model.impute(sites=sites, n_samples=1, return_mean=False, key_added=None, seed=3, **common, **one_pass),
        "denoised": model.denoise(depth=2.5, **common),
        "expression": model.get_normalized_expression(n_folds=3, return_numpy=True, **common),
        "likelihood": model.log_likelihood(n_times=4, seed=4, **common),
    }
    results = {f"draws_{key}": np.asarray(value) for key, value in draws.items()}
    return results | {f"expected_{key}": np.asarray(value) for key, value in expected.items()}


def main() -> None:
    """Train the models and save weights and results."""
    saved = {}
    for name in MODELS:
        model = train_model(name)
        weights = model.module.state_dict()
        saved |= {f"{name}/weights/{key}": value.cpu().numpy() for key, value in weights.items()}
        saved |= {f"{name}/{key}": value for key, value in results_of(name, model).items()}
        saved[f"{name}/history"] = history_of(model)
    np.savez_compressed(FILE, **saved)


if __name__ == "__main__":
    main()
