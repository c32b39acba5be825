"""Whether what a user gave is valid: everything is checked here, once, before any work.

* `parameters`: is this choice, number, share or tolerance allowed?
* `arrays`: does this array-like hold finite real numbers, and no gaps?
* `data`: are these rows, labels, weights or queries usable, and as which arrays?
* `given_pairs`: are these labelled pairs of rows usable?
* `given_bandwidth`: is this number, vector or matrix a bandwidth?
* `wording`: how do errors name a parameter, and show what was given? Texts about NaN, infinity and
  shapes are scikit-learn's.

Data flow: an estimator's method passes parameters and arrays as given; checks return plain
numbers and arrays, which `learn` takes without further tests.

Decisions
---------
**What data decide.** Whether a matrix is positive definite, or rows have directions at all, is
known once it is factored or they are read: `learn` raises there.

**No silent conversion.** NumPy takes strings, dates, imaginary parts and what a mask hides for
numbers; `arrays` refuses them. Numbers are Python's and NumPy's, True and False are none, and an
integer beyond float64 is infinite.

**No copy.** A float array is checked and left where it is: X is often most of the memory.

**Messages.** Every error names the parameter, what was given, what was expected and what to do.

**Nothing is half-fitted.** `fit` runs inside `unchanged_on_error`: if anything raises, in a
callback for example, the estimator has the attributes it had before.
"""

from fastmetric._validate.arrays import FLOATS, refuse_unusable
from fastmetric._validate.data import (
    components_so_far,
    float_array,
    in_precision_of,
    labelled_arrays,
    new_rows,
    query_data,
    row_indices,
    sample_weights,
    squarable,
    training_data,
    transformation,
    unchanged_on_error,
    unlabelled_data,
)
from fastmetric._validate.given_bandwidth import bandwidth
from fastmetric._validate.parameters import (
    background,
    callback,
    choice,
    flag,
    grid,
    grid_dimensions,
    integer,
    integer_or_auto,
    jobs,
    number,
    plain,
    positive,
    priors,
    random_state,
    real,
    sample_size,
    share,
    shares,
    tolerance_or_auto,
    tolerances,
    verbosity,
)
from fastmetric._validate.wording import shown

__all__ = [
    "FLOATS",
    "background",
    "bandwidth",
    "callback",
    "choice",
    "components_so_far",
    "flag",
    "float_array",
    "grid",
    "grid_dimensions",
    "in_precision_of",
    "integer",
    "integer_or_auto",
    "jobs",
    "labelled_arrays",
    "new_rows",
    "number",
    "plain",
    "positive",
    "priors",
    "query_data",
    "random_state",
    "real",
    "refuse_unusable",
    "row_indices",
    "sample_size",
    "sample_weights",
    "share",
    "shares",
    "shown",
    "squarable",
    "tolerance_or_auto",
    "tolerances",
    "training_data",
    "transformation",
    "unchanged_on_error",
    "unlabelled_data",
    "verbosity",
]
