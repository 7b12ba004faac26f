"""Environments of Gymnasium, ale-py and EnvPool as `Environments`, and their spaces as `Spaces`."""
