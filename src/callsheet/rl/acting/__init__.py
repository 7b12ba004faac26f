"""Playing environments with a policy: rollouts for learners, episodes for evaluators."""
