"""Benchmarks: side by side with the peers (`versus`), over the commits, and the papers' own."""

from bench.shared.setup import use_cache_of_these_sources

# Here, because Numba reads the folder when it is imported, and this runs before any module
# of the package can import it.
use_cache_of_these_sources()
