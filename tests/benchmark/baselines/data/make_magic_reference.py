"""Make ``magic_reference.npz``: what the package magic-impute answers on a small matrix.

Run it in an environment of its own, since the package pins old versions of others::

    python -m venv magic
    magic/bin/pip install magic-impute==3.0.0 graphtools==2.1.0 scikit-learn==1.9.1
    magic/bin/pip install --no-deps pandas==2.3.3  # the one it pins is too old for this numpy
    magic/bin/python make_magic_reference.py

Made with Python 3.11, magic-impute 3.0.0, graphtools 2.1.0, scprep 1.2.3, scikit-learn 1.9.1, numpy 2.4.6, scipy 1.17.1.
"""

from pathlib import Path

import magic
import numpy as np

SETTINGS = {  # the keywords of magic.MAGIC
    "default": {"knn": 5, "decay": 1, "t": 3, "n_pca": 100},
    "components": {"knn": 8, "decay": 2, "t": 2, "n_pca": 20},  # exact, as 10 more are drawn
    "wide": {"knn": 4, "knn_max": 40, "decay": 1, "t": 5, "n_pca": 100},
}

rng = np.random.default_rng(0)
states = rng.dirichlet(np.full(4, 0.3), 150)
rates = rng.gamma(8, 1 / 8, (150, 1)) * (states @ rng.gamma(0.5, 6.0, (4, 30)))
counts = rng.poisson(rates) + (np.arange(30) == 0)  # no empty cell
data = np.sqrt(counts * (np.median(counts.sum(axis=1)) / counts.sum(axis=1, keepdims=True)))
answers = {
    name: magic.MAGIC(verbose=0, n_jobs=1, random_state=0, **setting).fit_transform(data)
    for name, setting in SETTINGS.items()
}
np.savez_compressed(
    Path(__file__).parent / "magic_reference.npz",
    data=data.astype(np.float32),
    **{name: answer.astype(np.float32) for name, answer in answers.items()},
)
