"""Draw curves: as characters in a terminal, or as an image."""
