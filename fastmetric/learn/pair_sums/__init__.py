"""The sums of every row over its own class and over the others, and their gradient.

The first pass gives the logs of two sums of weighted kernels per row [CCK-5]; the second gives the
gradient with respect to the projected rows, U of [CCK-6], from one weight per row and class. Every
method to sum is a class with these two passes, `log_sums` and `gradient`:

* `problem`: what is summed (`PairProblem`), and what every method offers (`PairSums`).
* `ways`: all of them, of which `learn.chooser.choose` takes one.
* `all_pairs`: the sums over all pairs: of all rows at once (`SymmetricPairs`), or of some rows
  (`RowPairs`).
* `class_trees`: the sums over one k-d tree per class, with certified errors (`ClassTrees`).
* `class_lattices`: Gaussian sums by one lattice per class and their total (`ClassLattices`).
* `uncertified`: the sums of queries that a lattice cannot certify.
* `cutoff_grid`: the sums over the pairs within a compact kernel's cutoff (`CutoffGrid`).
* `certificate`: what are bounds of the exact sums, rounding of any method included?

Data flow: projected rows, sorted by class, so that a class is a slice and no inner loop
compares labels; a method is chosen; `log_sums`; the objective turns the logs into one weight per
row; `gradient`; the product with the data is the caller's (`learn.rows`).

Decisions
---------
**One objective, several methods to sum.** Every variant of NCA is one objective with one of these
classes: a variant brings weights, a kernel or a set of rows, never a second implementation.

**Symmetric blocks where possible.** `SymmetricPairs` visits each unordered pair once, with the
plain kernel; rows that underflow are computed again in row blocks. If most rows underflow, that
pass is wasted: about 48 rows, evenly spread, are tested first in logs, and if their median
underflows all rows take row blocks. Chosen rows (`rows` in `nca_value_and_grad`), stochastic
batches and predictions take row blocks, too. The biweight kernel has no tails to underflow: it
takes symmetric blocks at any scale.

**When trees are considered.** From 5,000 rows on, up to 12 dimensions and from 50 rows a class;
with a batch of m rows four times m counts, as the trees of all points have to be built for them.
The cell list is considered from 500 rows on. Whether trees are taken depends on counted work, as in
`learn.kernel_sums`: on random normal data, n = 5,000 and 20,000, 2 and 5 dimensions, maps of scale
0.1 to 30 and rtol 0 and 0.01, "auto" took at most 1.2 times the better of the two plus 10 ms in
all 24 cases.

**One list of tasks for all classes.** Both passes over trees go over the walks of all classes as
one list: a class of one block would leave the other threads idle.

**A cell list instead of trees for a compact kernel.** With a compact kernel the cutoff radius
determines the pairs, and tree nodes add nothing. Three times the map of a stochastic fit (50,000
rows, d = 2): 0.06 s instead of 0.19 s by trees.

**The other classes as a difference.** A lattice per class and that of all points have common
cells, so that the sum over the other classes is the total less the own one: as if the others had
been read by themselves, up to the rounding of the two values. C classes cost one read more than
one class does, and the gradient two spreads and one read.

**A row is accepted by the error of its own P.** A lattice errs relative to every sum, and by a
share of the total weight. A row whose own sum is negligible has a P near 0 whatever the relative
error of that sum is: it need not be summed again. With a background P is not that of the two sums
alone, and each of them has to be within the tolerance.

**Estimates are values of lattices, not middles of intervals.** The bounds of a row are far wider
than its error, and have kinks. The values are a smooth function of the map up to the cut stencils,
and the gradient is that of this function, so that a line search sees a consistent pair.
"""
