"""Whole genes and modalities are hidden."""

import numpy as np
import pytest

from sccountsdiff.benchmark.missingness import (
    CorrelatedPanel,
    Modality,
    Panel,
)


@pytest.mark.parametrize("kind", [Panel, CorrelatedPanel])
def test_a_panel_lacks_whole_genes_and_each_batch_others(kind, counts):
    sites = kind(0.3, group_size=2)(counts)
    assert (sites == sites[0]).all() and sites[0].sum() == round(0.3 * counts.shape[1])
    batches = np.array(["a", "b", "c"])[np.arange(len(counts)) % 3]
    sites = kind(0.3, group_size=2)(counts, cell_groups=batches)
    panels = [sites[batches == batch] for batch in "abc"]
    assert all((panel == panel[0]).all() and panel[0].sum() == 5 for panel in panels)
    assert len({panel[0].tobytes() for panel in panels}) > 1
    assert not kind(0)(counts).any() and kind(1)(counts).all()


def test_a_correlated_panel_lacks_genes_that_go_together():
    """Ten groups of five genes that share a factor: what is hidden are whole groups, of which nothing is left."""
    rng = np.random.default_rng(0)
    factors = np.repeat(rng.gamma(1, 5, (300, 10)), 5, axis=1)
    order = rng.permutation(50)
    counts = rng.poisson(factors)[:, order]
    hidden = Panel(0.4, by="correlation", group_size=5)(counts, seed=1)[0]
    per_group = np.bincount((order // 5)[hidden], minlength=10)
    assert sorted(per_group) == [0] * 6 + [5] * 4
    assert 0 < np.bincount((order // 5)[Panel(0.4)(counts, seed=1)[0]], minlength=10).max() < 5
    silent = np.zeros((4, 6))
    assert CorrelatedPanel(0.5)(silent)[0].sum() == 3, (
        "genes without any count have no correlation, and are hidden as others"
    )


def test_a_modality_is_all_of_its_genes(counts):
    groups = np.array(["rna"] * 10 + ["protein"] * 7)
    for pattern in (Modality("protein"), Modality()):
        sites = pattern(counts, gene_groups=groups)
        assert sites[:, 10:].all() and not sites[:, :10].any()
    assert Modality("rna")(counts, gene_groups=groups, valid=counts > 0).sum() == (counts[:, :10] > 0).sum()
    three = [*groups[:16], "hashtag"]
    assert Modality("hashtag")(counts, gene_groups=three)[0].sum() == 1
    for pattern, given in (
        (Modality(), three),
        (Modality("atac"), groups),
        (Modality(), ["rna"] * 17),
        (Modality(), None),
    ):
        with pytest.raises(ValueError, match="missingness 'modality' needs"):
            pattern(counts, gene_groups=given)
