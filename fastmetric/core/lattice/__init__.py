"""Sums of Gaussians on a lattice: points spread onto it, the lattice smoothed, and read off.

A Gaussian is the convolution of three Gaussians [GRD-1]. With the first, every point is added to
the cells around it; with the second, the lattice is convolved along each axis; with the third, a
query adds up the cells around it. The time is linear in points, queries and cells.

* `stencils`: what are the taps of a point in the cells around it, in vector registers?
* `spreading`: how are points added to a lattice, and sorted by the tile that they lie in?
* `moments`: what takes the place of the points of a line, where they are many times the cells?
* `smoothing`: how is a lattice convolved along one axis?
* `reading`: what are the sums at queries, with bounds, and their slopes?
* `segment_lattices`: what are the sums over segments of the points, and the gradient?

Data flow: `learn.lattices.lattice_plan` chooses spacing and widths for a tolerance,
`lattice_taps` turns them into polynomials; `learn.lattices.point_lattice` runs the loops of this
folder on all cores.

Decisions
---------
**The error is relative to every pair's own kernel.** By Poisson's sum formula the lattice
multiplies the kernel of a pair by a number near 1, and a stencil that is cut leaves out terms that
are positive and bounded [GRD-2], [GRD-3]. So the bound holds in the tails as well as in the middle.
Narrower windows (Kaiser and Bessel's) have errors relative to the largest kernel.

**Direct convolution.** A Fourier transform would err by a share of the largest cell.

**Taps are polynomials.** The taps of a point are a function of its place within its cell; one
Horner scheme over a vector of eight taps takes the place of eight exponentials. The degree is the
least whose error is a fiftieth of the tolerance.

**Moments of parts of cells.** On a line, 10,000,000 points may share 600 cells. Four moments of
each of some 32 parts of a cell, a cubic polynomial for every tap and part, take a fifth of the time
of eight taps for every point, within the same share of the tolerance.

**Three axes, always.** Axes that the data do not have are one cell long and have one tap, so that
one compiled loop serves one, two and three dimensions.

**float64 throughout.** In float32 spreading, smoothing and reading 580,000 points took 21 ms, not
30, in two dimensions, 192 instead of 225 in three. But a cell would lose half a unit of 6e-8 for
each of its points, so that tasks would have to be of some thousand points and added in float64, and
the logs take as long as before: 10 to 15 % of a density remained, and were not taken.

**A task owns a lattice.** Where the lattice fits into a cache, a task adds its points, in any
order, to a lattice of its own; else points are sorted by tile, and a task's lattice covers the
tiles of its points. These are added in the order of the tasks: no atomics, and the same bits on any
number of threads.
"""
