"""Which linear map explains that pairs of rows coincide: Latent Coincidence Analysis.

* `coincidence_fit`: how does a fit go, from parameters to a recorded run?
* `likelihood`: what is the likelihood of pairs, and its gradient, at a map and a noise [COI-3]?
* `likelihood_solvers`: how is it maximised, by L-BFGS or by EM?
* `streaming_pairs`: which steps do pairs give that arrive once?
* `impostors`: which rows are targets and impostors, and which pairs are active?
* `impostor_rounds`: how do search and ascent alternate, for a metric of nearest neighbours?
* `trials`: which start, schedule and number of rounds have the fewest errors on held-out rows?
* `class_means`: what is the model of coincidence with class means, eq. (22) of the paper?

Data flow, from pairs: `coincidence_fit` makes the start; `likelihood` keeps row numbers;
`likelihood_solvers` maximises. From labelled rows: `trials` chooses a start and a number of rounds
on held-out rows; in each round of `impostor_rounds` the rows are projected, `impostors` searches,
length scales are fitted, a solver takes a few steps, and the map moves a short way towards their
end.

Decisions
---------
**Pairs by row numbers.** W H of [COI-3] is UᵀX with one vector u_i per row, gathered from the
pairs in which the row is first or second: no outer product is formed, and no two blocks write to
the same row. L-BFGS moves in coordinates in which the differences of pairs have covariance one,
as EM does.

**Short rounds.** For nearest neighbours the pairs change with the map. A long step reaches a
region where impostors are not known yet; the next search adds all of them at once, they are kept,
and the fit ends with a worse map and ten times as many pairs (letter: 4 to 5 % errors instead of
3.3 %). So a round moves the map by at most a twentieth of its size.

**Few rows.** With few rows the neighbours in the input space may mean little (balance-scale), and
the comparison of two maps is uncertain. There targets are chosen again under the map every few
rounds, and pairs and length scales start again with them, unless trials show that this does not
help. Trials also choose the start and the number of rounds. The previous choice is given up only
if, row by row, the errors are fewer by more than one standard error.

**Impostors by tiles.** Impostors are searched tile by tile, a few milliseconds each. Every row
keeps a heap of its nearest 100, and a full heap shrinks the row's radius for later tiles. Which
tiles see that depends on the threads, the result does not: a row beyond the radius would not have
entered the heap.
"""
