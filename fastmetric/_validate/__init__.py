"""Whether what a user gave is valid: everything is checked here, once, before any work.

* `parameters`: is this choice, number, share or tolerance allowed?
* `data`: are these rows, labels, weights or queries usable, and as which arrays? Texts about NaN
  and infinity are scikit-learn's.
* `given_pairs`: are these labelled pairs of rows usable?

Data flow: an estimator's method passes parameters and arrays as given; checks return plain
numbers and arrays, which `learn` takes without further tests.

Decisions
---------
**One exception.** A bandwidth is checked by `learn.kernel_sums.bandwidths`, where its shape is
interpreted.

**No copy.** A float array is checked and left where it is: X is often most of the memory.

**Messages.** Every error names the parameter, what was given, what was expected and what to do.

**Nothing is half-fitted.** `fit` runs inside `unchanged_on_error`: if anything raises, in a
callback for example, the estimator has the attributes it had before.
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
