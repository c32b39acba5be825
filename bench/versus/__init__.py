"""Side by side with the peers: a module for each method, named as the package's."""
