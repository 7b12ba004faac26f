"""Networks in PyTorch: what learners train, and what actors run for images or an LSTM."""

from callsheet.rl.nets.torch.adam import Adam
from callsheet.rl.nets.torch.manual_mlp import ManualMLP
from callsheet.rl.nets.torch.net import Output, TorchNet
from callsheet.rl.nets.torch.parallel import SEQUENTIAL, TwoThreads
from callsheet.rl.nets.torch.parameters import Parameters, tensors
from callsheet.rl.nets.torch.policy import TorchPolicy

__all__ = [
    "SEQUENTIAL",
    "Adam",
    "ManualMLP",
    "Output",
    "Parameters",
    "TorchNet",
    "TorchPolicy",
    "TwoThreads",
    "tensors",
]
