"""Policies in PyTorch: what learners train, and what actors run when there are images or an LSTM."""

from callsheet.rl.nets.torch.adam import Adam
from callsheet.rl.nets.torch.manual_mlp import Layers
from callsheet.rl.nets.torch.net import Output, TorchNet
from callsheet.rl.nets.torch.parallel import ALONE, Pair
from callsheet.rl.nets.torch.parameters import Parameters, tensors
from callsheet.rl.nets.torch.policy import TorchPolicy

__all__ = ["ALONE", "Adam", "Layers", "Output", "Pair", "Parameters", "TorchNet", "TorchPolicy", "tensors"]
