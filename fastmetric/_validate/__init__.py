"""Validation of what users give, before any work.

* `parameters`: choices, numbers, shares, tolerances.
* `data`: rows, labels, weights, queries.
* `given_pairs`: labelled pairs of rows.

Every error names the parameter, what was given and what was expected.
"""

from fastmetric._validate.data import (
    FLOATS,
    components_so_far,
    float_array,
    in_precision_of,
    labelled_arrays,
    new_rows,
    query_data,
    refuse_strings,
    row_indices,
    sample_weights,
    squarable,
    training_data,
    transformation,
    unchanged_on_error,
    unlabelled_data,
)
from fastmetric._validate.parameters import (
    background,
    choice,
    flag,
    integer,
    jobs,
    number,
    positive,
    priors,
    sample_size,
    share,
    shares,
    tolerances,
)

__all__ = [
    "FLOATS",
    "background",
    "choice",
    "components_so_far",
    "flag",
    "float_array",
    "in_precision_of",
    "integer",
    "jobs",
    "labelled_arrays",
    "new_rows",
    "number",
    "positive",
    "priors",
    "query_data",
    "refuse_strings",
    "row_indices",
    "sample_size",
    "sample_weights",
    "share",
    "shares",
    "squarable",
    "tolerances",
    "training_data",
    "transformation",
    "unchanged_on_error",
    "unlabelled_data",
]
