"""Methods and the sums they are made of: from checked arrays to fitted numbers.

`learn` turns data into blocks, runs compiled functions of `core` on them by `engine`, and adds the
results in order. It knows arrays, labels and settings, not estimators.

Files:

* `rows`: what is X? The only access to the data of a fit: blocks, chosen rows, means, moments,
  projections and products. `as_rows` decides of which kind they are.
* `tree_building`: how is a k-d tree built on all cores?
* `linear_starts`: which map do PCA, LDA or RCA give?
* `nearest_neighbours`: which are every point's nearest others?
* `tree_search`: how do queries go to a k-d tree, in blocks?
* `kernel_table`: what are a kernel's volume and variance as a density, and random draws from it?
* `costs`: what does each step of a sum cost, for every "auto" of sums? The only such table.
* `chooser`: which way sums for a problem (`choose`), with the whole rule? The only such rule.

Folders, each imported only by those below it in this list:

* `optim`: how are parameters moved (L-BFGS, step sizes, batches), and what is recorded of a run?
* `lattices`: how fine is a lattice for a tolerance, and what does it know of every query?
* `kernel_sums`: what is the log sum of kernels at a query, with bounds?
* `pair_sums`: what are the class sums of all rows, and their gradient, and by which method?
* `nca`: Neighbourhood Components Analysis.
* `local_component`: Local Component Analysis.
* `coincidence`: Latent Coincidence Analysis.
* `manifold`: Manifold Parzen Windows.
* `modes`: the modes of a density, for mean shift.

Decisions
---------
**Threads, not prange.** Every compiled function releases the GIL and works on one block, 5 to 100
ms. `engine` runs the blocks on Python threads that take work from one queue. A
`ThreadPoolExecutor` was refused: its conditions are Python code, and a Ctrl-C between two of their
lines would leave a lock held for ever; a `SimpleQueue` is one C call, which either happened or did
not. Numba's threading layers were refused: one aborts the process when two Python threads enter
it, another kills forked children. With Python threads Ctrl-C works between blocks, a progress bar
moves, fits may overlap in one process, and a forked child makes threads of its own. At most four
blocks per thread are in flight, which bounds the memory of results that wait.

**The same bits at any number of threads.** Blocks depend on the sizes of the data, never on the
number of threads; results are added in the order of the blocks; every decision is made from the
data, never from a clock. Different machines or library versions may differ in the last bits.

**One BLAS thread, by reference count.** BLAS and LAPACK return other last bits on two threads than
on one. They run on one, and large products are cut into blocks. The limit belongs to the process:
two overlapping fits that each set and restored it would restore the wrong number. `engine` counts
its users; the first sets the limit, the last lifts it.

**Ctrl-C.** An exception out of a signal may strike inside a compiled function, a lock, or the
setting of BLAS threads. While `engine` works, the signal is only recorded, and `KeyboardInterrupt`
is raised between blocks; in a user's callback it is raised at once. Blocks that have not begun are
cancelled, those under way finish. The estimator is then fitted at the last finished iteration, if
there is one.

**Centring block by block.** The methods depend on differences of rows. Each block is centred as it
is read, so that data far from the origin lose no digits without a centred copy of X. A centred
copy is made in three places only: the starts with more features than rows (it is then small in
rows), the covariance of pairs' differences in Latent Coincidence Analysis, and candidates of
neighbours by products.

**RCA and LDA in units of the deviations.** Both whiten the scatter within classes and must not
inflate a direction in which the classes hardly vary. Total variances are made 1 first, and
eigenvalues of the scatter within classes below 1/100 of the largest are raised to that. With a
floor near rounding, features that are constant except in a few rows, such as pixels at the margin
of pictures, may dominate the start. With a penalty alpha / n counts as variance, too: over ten
halves of scikit-learn's digits (three dimensions, alpha = 0.3) 88.1 % of new rows are right after
71 iterations, instead of 86.4 % after 102.

**Randomness.** Random numbers are drawn in Python, from `random_state`, and passed down as arrays:
batches, sub-samples, held-out rows and random starts.
"""
