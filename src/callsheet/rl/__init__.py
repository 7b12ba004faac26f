"""Learning on top of the data plane: environments, networks, algorithms and the roles that run them."""
