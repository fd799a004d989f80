"""State: a training between two steps, as one file. Weights, optimizer, random numbers and curve cannot disagree."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.inspection import tensor_file
from regard.inspection.files import beside
from regard.lab.training.task import Point


@dataclass
class State:
    """What the next step needs: `since` is the sum of the losses after the last point of the curve."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    generator: torch.Generator
    step: int = 0
    since: float = 0.0
    seconds: float = 0.0
    curve: list[Point] = field(default_factory=list)

    def save(self, path: Path) -> None:
        """Write everything; the file is there whole or not at all."""
        tensors = {f"model/{name}": tensor for name, tensor in named(self.model).items()}
        for name, parameter in self.model.named_parameters():
            for part, tensor in self.optimizer.state.get(parameter, {}).items():
                tensors[f"optimizer/{name}/{part}"] = tensor
        tensors["random/generator"], tensors["random/torch"] = self.generator.get_state(), torch.get_rng_state()
        values = {"step": self.step, "since": self.since, "seconds": self.seconds, "curve": self.curve}
        write(path, tensors, values)

    def load(self, path: Path) -> None:
        """Continue from a file that `save` wrote."""
        tensors, values = read(path)
        fill(self.model, path, tensors)
        for name, parameter in self.model.named_parameters():
            if parts := _below(f"optimizer/{name}/", tensors):
                self.optimizer.state[parameter] = parts
        try:
            self.generator.set_state(tensors["random/generator"])
            torch.set_rng_state(tensors["random/torch"])
            self.step, self.since, self.seconds = values["step"], values["since"], values["seconds"]
            self.curve = values["curve"]
        except (KeyError, RuntimeError, TypeError) as error:
            raise ValueError(f"{path} is no checkpoint ({error}); delete it, and the training begins anew") from error


def named(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers, each once, however many layers share it."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def fill(model: nn.Module, path: Path, tensors: dict[str, Tensor]) -> None:
    """Copy the weights of a file into the model."""
    weights, saved = named(model), _below("model/", tensors)
    if {name: each.shape for name, each in weights.items()} != {name: each.shape for name, each in saved.items()}:
        raise ValueError(f"the weights of {path} are not those of this model; delete the file")
    with torch.no_grad():
        for name, tensor in weights.items():
            tensor.copy_(saved[name])


def write(path: Path, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
    """A safetensors file with JSON and checksums in its header."""
    with beside(path, "set REGARD_CACHE to a folder that you may write to") as part:
        tensor_file.write(part, {"regard": json.dumps(values)}, tensors)


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and values that `write` wrote, in memory of their own."""
    try:
        file = tensor_file.mapped(path)
        file.verify()
        return {name: tensor.clone() for name, tensor in file.tensors.items()}, json.loads(file.texts["regard"])
    except (KeyError, ValueError) as error:
        raise ValueError(f"{path} is damaged ({error}); delete it, and the training begins anew") from error
