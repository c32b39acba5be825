"""Solvers of every method: how a maximum is found, and what is recorded of a run.

They are independent of the objective.

* `outcome`: what is recorded of a run, how does it end, and what is reported?
* `lbfgs`: how does SciPy's L-BFGS run?
* `step_rule`: how long is a step along the gradient of a batch, without a learning rate, and how
  does it decrease?
* `row_batches`: which rows form a batch: at random, by farthest points, or by projection?
* `holdout`: which rows are held out for model selection?
* `scalar_search`: which positive number is best?

Data flow: a method provides value and slope as a function of flat parameters; the solver
records every iterate, so that a valid state exists at any time, also under Ctrl-C; the outcome is
the iterates and the reason of the end, from which the method makes `history_` and its warnings.

Decisions
---------
**A step rule without a rate.** The gradient of a batch is averaged over about ten steps and
divided by its own size, averaged over about a hundred. The length of a step is a tenth of the size
of the start at first and decreases to zero along half a cosine. Gradient and map are in units in
which every feature has variance one. So neither the units, nor the number of rows, nor the scale
of the objective enter, and there is no rate to tune. Averaged iterates are not kept: at the end of
the cosine, iterates vary as little. On-line, where the end is unknown, the length decreases as
1 / sqrt(1 + t / 50).

**One size for the whole gradient, not one per entry as in Adam.** With one per entry, features
that hardly vary (pixels at the margin of a picture) are moved as far as those that separate the
classes. A third of MNIST's test rows, 800 mini-batch steps of 1,000 rows: Adam's rule per entry 88
to 91 % correct, depending on the units and the start, one size 91 %.

**A penalty counts as variance.** A penalty has curvature of its own, the same for every entry, and
in the units above the larger the less a feature varies: steps that suit the other features are far
too long for it, and the size of its gradient dominates theirs. Its share in a row, alpha / n,
therefore counts as variance, for each row of the map with its own alpha. 12,000 digits of MNIST as
they are, alpha = 10: mini-batches classify 90.6 % of other rows correctly instead of 82 %.
"""
