"""The density of Gaussians that lie along the data: Manifold Parzen Windows.

* `neighbourhood_pca`: what are the principal directions of every point's neighbourhood [MAN-4]?
* `covariance_grid`: what are the Gaussians' shapes once noise is added, for a grid of settings?
* `mixture_density`: what is the log density of the mixture, and by which method?
* `gaussian_tree`: what is it in few dimensions, by a walk over a k-d tree [MAN-6]?
* `marginal_screening`: which Gaussians matter at which queries, in many dimensions [MAN-5]?

Data flow: `fit` runs `learn.nearest_neighbours` and `neighbourhood_pca` block by block, so
that no table of neighbours is kept. `score_samples` makes the shapes and calls `mixture_density`,
which takes the tree, screened pairs, products, or differences, and adds up blocks of
`core.gaussians`.

Decisions
---------
**Products.** A density costs q + 1 products of D terms for every pair of a query and a row. They
are one matrix product per block, and a fused loop turns each tile into terms while it is in the
cache.

**Screening by marginals.** In many dimensions few Gaussians matter at a query. A Gaussian's
marginal in a few principal directions of the data has a smaller quadratic form than the whole, and
takes d instead of D terms a product: products of marginals in float32 list the pairs that may
matter, and only these are computed in full, by differences. A term is omitted only if it is,
rounding included, so far below a term known exactly that all omitted terms together are below
1e-12 of the density (1e-7 in float32, or `rtol` if it is larger). On USPS (q = 11, sigma^2 = 0.4)
32 of 256 coordinates leave 7 % of the pairs where 2 % matter. Other bounds leave more: the largest
eigenvalue 97 %, the leading 6 of 11 directions 59 %; directions in which the data vary most
*relative* to the Gaussians leave more than the principal ones. Marginals are computed block by
block in float64 and not kept: they would take as much memory as a part of the directions. So
screening needs at least as many queries as features, and work that outweighs the trial on a few
queries that chooses the number of coordinates; otherwise all products are taken.

**A tree in few dimensions.** A trial counts pairs and nodes, as for sums of one kernel; it takes
at most one query in 32, and ends when it has cost more than blocks would. A grid is walked shape
by shape. The tree is built by each call, 30 ms for 100,000 points, so that pickles remain arrays
of the fit.

**Directions on the smaller side.** The eigenvectors of k x k or D x D products of differences are
right to eps times the largest eigenvalue over their own. Rows whose q-th eigenvalue is below 1e-4
of the largest (1e-8 for float32 results) use a singular value decomposition.
"""
