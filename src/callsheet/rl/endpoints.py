"""The endpoints of a training: recipes declare them, roles bind and connect them."""

from __future__ import annotations

from typing import Final

TRAJECTORIES: Final = "trajectories"
"""Rollouts. The learner binds it; actors connect."""
EPISODES: Final = "episodes"
"""Step counts and finished episodes when transitions go to a replay. The learner binds it; actors connect."""
PARAMETERS: Final = "parameters"
"""The newest policy. The learner binds it; actors, evaluator and policy server connect."""
EVALUATIONS: Final = "evaluations"
"""Evaluation results. The learner binds it; the evaluator connects."""
REPLAY: Final = "replay"
"""Transitions. The replay binds it; actors insert, the learner samples."""
POLICY: Final = "policy"
"""Central inference. The policy server binds it; actors connect."""
TENSORBOARD: Final = "tensorboard"
"""TensorBoard's web page, exposed to people."""
