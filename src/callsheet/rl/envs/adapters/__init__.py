"""Libraries' environments as `Environments`: single ones in a loop, vectors, Atari, EnvPool; and their spaces."""
