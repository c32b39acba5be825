"""The experiments of the papers: what was published next to what is measured here."""
