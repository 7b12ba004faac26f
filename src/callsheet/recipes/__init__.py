"""Ready-made experiments: what `callsheet train` writes."""
