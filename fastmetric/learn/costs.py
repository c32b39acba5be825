"""What sums over pairs cost: the one table that every choice of a method asks.

Nanoseconds on the machine named in bench/README.md; only their ratios matter.
`python -m bench.costs` measures the rows of `Costs`, `ProductCosts` and `EStepCosts` again. Beside
them stand the sizes from which a structure is considered: below these, building it and counting its
work takes longer than it could save.
"""

from __future__ import annotations

from typing import NamedTuple


class Costs(NamedTuple):
    """What one method of summing kernels costs, in nanoseconds."""

    dense_pair: float  # a pair in large tiles, which are the alternative
    leaf_pair: float  # a pair in a leaf, or within the cutoff
    per_dimension: float = 0.0  # more for every dimension of a pair
    expansion: float = 0.0  # a far-field expansion at one query
    node: float = 0.0  # a node visited by a group of queries
    underflowed: float = 0.0  # a query that has to be summed again, alone
    point: float = 0.0  # building the structure, for every point


# Log sums over one tree; its leaves may be in float32.
SUMS = Costs(0.85, 1.05, per_dimension=0.05, expansion=30.0, node=100.0)
SUMS_IN_FLOAT32 = SUMS._replace(leaf_pair=0.6)
# Log sums by segment: one walk over the tree of every segment, which is built for this purpose.
# A dense pair is that of sums that are shifted by the nearest point.
SUMS_BY_SEGMENT = Costs(1.8, 1.6, per_dimension=0.05, expansion=30.0, node=100.0, point=300.0)
# Both passes, log sums and gradient; expansions and queries alone cost that for every
# coordinate, the sum and one more. A dense pair is that of symmetric blocks.
SUMS_AND_GRADIENT = Costs(1.6, 5.0, 0.25, expansion=20.0, node=1100.0, underflowed=8e3, point=5e3)
# Both passes over the pairs within the cutoff of a compact kernel.
CUTOFF = Costs(0.6, 0.7, point=300.0)
CUTOFF_BY_SEGMENT = Costs(0.8, 0.7, point=500.0)  # log sums alone; a cell list per segment


class GridCosts(NamedTuple):
    """What sums of Gaussians by a lattice cost, in nanoseconds."""

    place: float  # the taps of a point or a query, for every coordinate
    row: float  # of eight taps, added or read
    cell: float  # made and added up
    cell_tap: float  # a pair of taps of the smoothing, at a cell


GRID = GridCosts(25.0, 3.6, 2.0, 0.2)
GRID_ROW = 150.0  # the bounds and logs of a row's class sums
GRID_CLASSES = 2e6  # the tasks of class sums, however few rows there are


class ProductCosts(NamedTuple):
    """What log sums of Gaussians by products of matrices cost, in nanoseconds."""

    product: float  # each product of a pair
    slab: float  # to add the products of a pair over further coordinates
    pair: float  # of which the exponent is compared
    kernel: float  # more, if it is added
    turned: float  # more, if it is added to the sums of both points
    searched: float  # more, where terms are listed
    listed: float  # a pair whose exponent is computed again
    listed_difference: float  # each of its differences
    alone: float  # each difference of a query that sums by differences would lose to underflow


PRODUCTS = ProductCosts(0.034, 0.4, 0.6, 1.0, 0.4, 0.6, 30.0, 0.3, 2.8)
PRODUCTS_IN_FLOAT32 = ProductCosts(0.017, 0.2, 0.3, 0.5, 0.3, 0.5, 30.0, 0.3, 2.8)


class GaussianCosts(NamedTuple):
    """What a pair of a query and a local Gaussian costs, in nanoseconds."""

    pair: float  # in a leaf
    product: float  # each product of the pair in a leaf
    node: float  # a node that is opened
    # In blocks, between what they take in float64 and in float32:
    block_shape: float  # each shape of the grid
    block_direction: float  # each direction
    block_product: float  # each product of a direction


LOCAL_GAUSSIANS = GaussianCosts(2.5, 0.25, 25.0, 1.9, 0.4, 0.05)


class ScreeningCosts(NamedTuple):
    """What screening by marginals costs for a pair, in products in float32."""

    bound: float  # in every direction, beside its coordinates
    alone: float  # a pair computed alone, over its products in a block
    marginal: float  # the marginal of a Gaussian, over the products of its directions


SCREENING = ScreeningCosts(5.0, 3.5, 6.0)


class EStepCosts(NamedTuple):
    """What a pair of rows costs in the E-step of Local Component Analysis, in nanoseconds."""

    # By products:
    pair: float  # turned into its responsibility
    product: float  # each product of the pair: in the distance, and in the scatter
    # By the neighbour list, for every ordered pair:
    candidate: float  # tested
    candidate_product: float  # each product in its distance
    listed: float  # more, if it may count
    listed_product: float  # each product in the scatter


E_STEP = EStepCosts(2.9, 0.055, 3.3, 0.04, 12.0, 0.075)

TREE_DIMENSIONS = 12  # up to which a tree separates near from far
TREE_ROWS = 5000  # of points, and of four times the queries: log sums with their gradient
TREE_ROWS_PER_SEGMENT = 50
TREE_POINTS = 1000  # log sums over a tree that is built in any case
TREE_PAIRS = 2e8  # log sums by segment
TREE_POINT, TREE_QUERY = 250.0, 400.0  # nanoseconds at least: a tree of points, and of queries
TREE_TRIAL, TREE_TRIAL_SHARE = 5e6, 0.2  # nanoseconds, and of the best way: trees built in vain
GRID_QUERIES = 500
CUTOFF_QUERIES = 500
PRODUCT_DIMENSIONS = 16  # from which on the E-step multiplies rows instead of taking differences
PRODUCT_ROWS = 512  # of points, and of queries, from which on densities multiply rows
NEIGHBOUR_LIST_PAIRS = 1.2e7  # that may be listed, of 8 or 12 bytes
FEW_PRODUCTS_SHARE = 0.25  # of the weights: fewer are multiplied one by one
GAUSSIAN_TREE_ROWS = 256  # queries, and local Gaussians
SCREENING_PRODUCTS = 7e9  # in float32 without screening: a trial takes as long as some 1e9
SCREENING_GAIN = 0.8  # of the cost without screening: a trial counts roughly
SCREENED_SHARE = 0.2  # of the pairs: fewer are computed one by one
