"""manifold."""
