"""Run environments with a policy: rollouts and transitions for learners, episodes for evaluations."""
