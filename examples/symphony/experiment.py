# A Symphony script. Two things differ from the original: the imports, and an image that exists.
from callsheet.compat.symphony.engine import Cluster

cluster = Cluster.new("kubernetes")  # with CALLSHEET_ON=local in the environment: this machine
exp = cluster.new_experiment("rl")
learner = exp.new_process("learner", container_image="python:3.12", command="python", args=["learner.py"])
agent = exp.new_process(
    "agent", container_image="python:3.12", command="python", args=["agent.py", "--env", "half-cheetah"]
)
learner.binds("replay-server")
learner.binds("parameter-server")
agent.connects("replay-server")
agent.connects("parameter-server")
learner.exposes("tensorboard")
cluster.launch(exp)  # runs learner.py and agent.py, and returns
