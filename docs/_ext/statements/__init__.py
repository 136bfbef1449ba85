"""Values that pages compute from saved results, and statements that are checked against them: a file for each topic.

``@value`` functions return the text that ``{value}`name / argument / key=value``` shows. ``@claim`` functions return whether
the text of ``{claim}`text <name / argument / key=value>``` is true. Arguments are texts; " / " separates them.
"""

from statements import (
    any_table,
    comparison,
    covariates,
    faults,
    heldout,
    images,
    paper_model,
    simulated,
    six_data_sets,
    speed,
)
from statements.registry import CLAIMS, VALUES, check, evaluate

__all__ = ["CLAIMS", "VALUES", "check", "evaluate"]
