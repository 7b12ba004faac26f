"""The programs of a training, one module per role. `callsheet.rl.endpoints` says who connects to whom."""
