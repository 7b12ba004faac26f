"""What `callsheet train` needs besides its options: arguments, resuming, and reports."""
