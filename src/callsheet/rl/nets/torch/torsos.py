"""The Nature CNN, IMPALA's ResNet and an LSTM, as functions of named parameters."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from callsheet.rl.nets.network import ImageInput
from callsheet.rl.nets.parameters import NATURE, SECTIONS
from callsheet.rl.nets.torch.parameters import Parameters


def pixels(image: ImageInput, frames: Tensor) -> Tensor:
    """Frames [..., H, W, C], [..., C, H, W] or [..., H, W] as one batch [N, C, H, W] of floats."""
    if image.last:
        frames = frames.reshape(-1, image.height, image.width, image.channels).permute(0, 3, 1, 2)
    else:
        frames = frames.reshape(-1, image.channels, image.height, image.width)
    # On a CPU, channels last in memory make gradients of convolutions a fifth faster, but a pass without gradients slower.
    last = torch.is_grad_enabled()
    return frames.to(torch.float32, memory_format=torch.channels_last if last else torch.contiguous_format)


def nature(parameters: Parameters, name: str, image: ImageInput, frames: Tensor) -> Tensor:
    """Three convolutions and a dense layer: [N, embed]."""
    x = frames
    for index, (_, _, stride) in enumerate(NATURE):
        weight = parameters[f"{name}.{index}.weight"]
        if index == 0:
            # Scaling the first weights equals scaling every pixel, with much less work.
            weight = weight * image.scale
        x = torch.relu(functional.conv2d(x, weight, parameters[f"{name}.{index}.bias"], stride))
    return _embed(parameters, name, x)


def resnet(parameters: Parameters, name: str, image: ImageInput, frames: Tensor) -> Tensor:
    """Three sections, each a convolution, a pooling and two residual blocks, then a dense layer: [N, embed]."""
    x = frames
    for index in range(len(SECTIONS)):
        section = f"{name}.{index}"
        weight = parameters[f"{section}.in.weight"]
        if index == 0:
            weight = weight * image.scale
        x = functional.conv2d(x, weight, parameters[f"{section}.in.bias"], padding=1)
        x = functional.max_pool2d(x, 3, stride=2, padding=1)
        for block in ("a", "b"):
            inner = _conv3(parameters, f"{section}.{block}.0", torch.relu(x))
            x = x + _conv3(parameters, f"{section}.{block}.1", torch.relu(inner))
    return _embed(parameters, name, torch.relu(x))


def lstm(parameters: Parameters, part: str, x: Tensor, first: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Unroll over [T, B, width] from a state [B, 2H]; where `first` [T, B] is 1, an episode starts from zeros.

    Returns [T, B, H] and the state after the last step."""
    hidden_weight = parameters[f"{part}.lstm.hidden"].t()
    # The part that does not depend on the state is one product for all steps.
    gates = functional.linear(x, parameters[f"{part}.lstm.input"], parameters[f"{part}.lstm.bias"])
    keep = (first == 0).to(x.dtype).unsqueeze(-1)
    hidden, cell = state.chunk(2, dim=-1)
    outputs = []
    for gate, keep_here in zip(gates.unbind(0), keep.unbind(0), strict=True):
        into, forget, new, out = torch.addmm(gate, hidden * keep_here, hidden_weight).chunk(4, dim=-1)
        cell = torch.sigmoid(forget) * (cell * keep_here) + torch.sigmoid(into) * torch.tanh(new)
        hidden = torch.sigmoid(out) * torch.tanh(cell)
        outputs.append(hidden)
    return torch.stack(outputs), torch.cat((hidden, cell), dim=-1)


def _conv3(parameters: Parameters, name: str, x: Tensor) -> Tensor:
    return functional.conv2d(x, parameters[f"{name}.weight"], parameters[f"{name}.bias"], padding=1)


def _embed(parameters: Parameters, name: str, x: Tensor) -> Tensor:
    weight, bias = parameters[f"{name}.embed.weight"], parameters[f"{name}.embed.bias"]
    return torch.relu(functional.linear(x.flatten(1), weight, bias))
