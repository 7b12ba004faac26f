# A Symphony script. Two things differ from the original: the imports, and an image that exists.
from callsheet.compat.symphony.engine import Cluster
from callsheet.compat.symphony.kube import KubeCluster  # noqa: F401 - as in the original

cluster = Cluster.new("kubernetes")  # cluster is a KubeCluster; CALLSHEET_ON=local runs it on this machine
exp = cluster.new_experiment("rl")  # exp is a KubeExperimentSpec
learner = exp.new_process("learner", container_image="python:3.12", command="python", args=["learner.py"])
agent = exp.new_process(
    "agent", container_image="python:3.12", command="python", args=["agent.py", "--env", "half-cheetah"]
)  # agent, learner are a KubeProcessSpec
learner.binds("replay-server")
learner.binds("parameter-server")
agent.connects("replay-server")
agent.connects("parameter-server")
learner.exposes("tensorboard")
cluster.launch(exp)  # starts agent.py and learner.py, and returns
