"""The base class of methods that complete training and test cells together."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from sccountsdiff.benchmark.baselines.base import Baseline
from sccountsdiff.benchmark.baselines.cells import Cells, stack
from sccountsdiff.benchmark.baselines.depth import PSEUDO_COUNT, depth_factor


@dataclass(eq=False)
class JointBaseline(Baseline):
    """A method that has no model of its own: it completes the matrix of training and test cells as a whole.

    Subclasses write ``_profiles``. What they return is brought to the observed total of each cell. A test cell with nothing
    observed would only disturb the others: it is left out and gets the mean of the training cells.

    Parameters
    ----------
    pseudo_count
        Added to observed and expected totals of a cell.
    """

    pseudo_count: float = PSEUDO_COUNT

    @abstractmethod
    def _profiles(self, cells: Cells, depth: np.ndarray, seed: int) -> np.ndarray:
        """What is expected of the test cells at the depth of an average cell, (test cells, genes).

        Test cells come after the ``n_train`` training cells; ``depth`` is the depth of each (cells, 1).
        """

    def _fit(self, cells: Cells, seed: int) -> None:
        self._train, self.n_train = cells, len(cells)
        self._mean = cells.gene_means()

    def _impute(self, cells: Cells, sites: np.ndarray, n_samples: int, seed: int) -> np.ndarray:
        answer = np.tile(self._mean, (len(cells), 1))
        observed_cells = np.flatnonzero(cells.observed.any(axis=1))
        if len(observed_cells):
            test = cells[observed_cells]
            joint = stack(self._train, test)
            # A method without a mask divides by the total of all entries, which makes up for some of the zeros.
            counted = joint.observed if self.uses_mask else np.ones_like(joint.observed)
            depth = depth_factor(joint.counts, counted, self._mean, self.pseudo_count)
            depth = np.where(depth > 0, depth, 1).astype(joint.counts.dtype)  # an empty cell stays as it is
            profiles = self._profiles(joint, depth, seed)
            answer[observed_cells] = profiles * depth_factor(test.counts, test.observed, profiles, self.pseudo_count)
        return answer
