"""Which covariance of a kernel is most likely, leaving one out: Local Component Analysis.

* `local_fit`: how does a fit go, from parameters to a density?
* `covariance_model`: which density do two covariances give (the M-step) [LOC-5]?
* `em`: how does EM run on all rows, and how many directions are local?
* `e_step`: what are the responsibilities' sums and second moment, and by which method?
* `product_e_step`: what are they by matrix products, a panel of rows at a time?
* `neighbour_list_e_step`: what are they where few pairs count, each pair once?
* `batch_em`: how does EM run by batches against a sample of neighbours [LOC-6]?
* `streaming_rows`: what is kept of rows that arrive in parts, for `partial_fit`?
* `penalty_choice`: which penalty predicts held-out rows best?
* `per_row`: how does EM run with one covariance per row, with an M-step of its own?

Data flow: `local_fit` chooses the penalty and the form of EM; `em` takes moments of the rows
once; in every iteration `covariance_model` whitens the rows, `e_step` returns a log sum per row and
the second moment of differences to neighbours [LOC-3], and the M-step makes the next model.
`penalty_choice` runs EM several times.

Decisions
---------
**Responsibilities in many dimensions.** The second moment needs all D coordinates, not a few
projected ones. From 16 dimensions on a panel of rows is multiplied with all rows by BLAS, and the
products become responsibilities in place, relative to each row's nearest neighbour: nothing
underflows. Most responsibilities lie below the rounding of their row's sum; they become zero, and
the second product skips them.

**A neighbour list where few pairs count.** If few pairs count, by an estimate from a few rows
(below a share of 0.05 in 16 dimensions, of 0.24 in 64; `costs.E_STEP`), and they are few enough to
be listed, every product is computed once for both rows. A pair is listed if it is within reach of
the nearest neighbour known so far of either row; blocks come in waves, each of which knows the
results of those before. The second moment needs lambda_ij + lambda_ji only, so that each pair is
multiplied with one row.

**Products where they lose nothing.** Distances out of products lose eps |w|^2 in units of the
kernel. Where the mean of that exceeds 1e-12 (5e-4 in float32), as for clusters far apart, pairs
are taken by differences.
"""
