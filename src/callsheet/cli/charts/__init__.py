"""Curves drawn for people: as characters in a terminal, and as a picture."""
