"""Folder: a model as others write it, config.json and safetensors."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.models.optional import need
from regard.nn import fuse

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
LAYERS = ("num_hidden_layers", "n_layer")  # what configs call the number of layers


@dataclass(frozen=True)
class Folder:
    """The settings and the tensors of one model."""

    path: Path
    config: dict[str, Any]

    @classmethod
    def open(cls, path: str | Path) -> "Folder":
        """Refuses what is no such folder."""
        path = Path(path).expanduser()
        if not path.is_dir():
            raise FileNotFoundError(f"no folder {path}; a model is a folder with config.json and {SINGLE}")
        file = path / "config.json"
        if not file.is_file():
            raise FileNotFoundError(f"{path} has no config.json; a model is a folder with config.json and {SINGLE}")
        try:
            config = json.loads(file.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{file} is not JSON: {error}") from error
        if not isinstance(config, dict):
            raise ValueError(f"{file} must hold an object of settings, got {type(config).__name__}")
        return cls(path, config)

    @property
    def kind(self) -> str:
        """The family's name, as its config has it."""
        return str(self.config.get("model_type"))

    def setting(self, name: str, *default: Any) -> Any:
        """A setting; one without a default must be there."""
        value = self.config.get(name)
        if value is None:
            if not default:
                raise ValueError(f"{self.path / 'config.json'} has no {name!r}, which {self.kind} models need")
            return default[0]
        return value

    def only(self, **wanted: Any) -> None:
        """Refuse settings that would change what is computed; one that is missing has the wanted value."""
        for name, value in wanted.items():
            if self.config.get(name, value) not in (value, None):
                raise ValueError(
                    f"{self.kind} with {name}={self.config[name]!r} is not built here, only {name}={value!r}: "
                    "run it with transformers and regard.hf.register() instead"
                )

    def choice(self, name: str, known: dict[str, str], *default: str) -> str:
        """What a setting's value is called in `regard.nn`."""
        value = self.setting(name, *default)
        if value not in known:
            raise ValueError(f"{self.kind} with {name}={value!r} is not built here; known are {', '.join(known)}")
        return known[value]

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor with its name, read file by file."""
        need("safetensors")
        from safetensors import SafetensorError, safe_open

        for file in self._files():
            try:
                with safe_open(file, "pt") as held:
                    for name in held.keys():  # noqa: SIM118 (it is no dict)
                        yield name, held.get_tensor(name)
            except SafetensorError as error:
                raise ValueError(f"{file} is not a whole safetensors file: {error}; fetch it again") from error

    def _files(self) -> list[Path]:
        index = self.path / INDEX
        if index.is_file():
            try:
                names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
                files = [self.path / Path(name).name for name in names]
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                raise ValueError(
                    f"{index} does not say which file holds which tensor: {error}; fetch it again"
                ) from error
        else:
            files = [self.path / SINGLE]
        for file in files:
            if not file.is_file():
                raise FileNotFoundError(
                    f"{self.path} has no {file.name}; weights that are pickled, which can run code, are not read: save "
                    "them as safetensors first"
                )
        return files

    def fill(self, make: Callable[[], nn.Module], renamed: Callable[[str, Tensor], dict[str, Tensor]]) -> nn.Module:
        """A module whose parameters are the tensors of the folder; `renamed` says where each goes.

        The module is made without memory of its own. Every parameter must be given, and every tensor must have a place;
        an empty answer of `renamed` says that a tensor is not wanted.
        """
        state: dict[str, Tensor] = {}
        for name, tensor in self.tensors():
            state |= renamed(name, tensor)
        for name in LAYERS:  # before as many are made
            if isinstance(count := self.config.get(name), int) and count > len(state):
                raise ValueError(
                    f"{self.path / 'config.json'} has {name} {count}, for {len(state)} tensors; fetch it again"
                )
        with _Unfilled():
            module = make()
        shared = {name for name, parameter in module.named_parameters(remove_duplicate=False)}
        shared -= {name for name, _ in module.named_parameters()}
        missing = [name for name in module.state_dict() if name not in state and name not in shared]
        extra = [name for name in state if name not in module.state_dict()]
        if missing or extra:
            raise ValueError(
                f"the tensors of {self.path} do not fit its config.json: "
                f"{_listed('missing', missing)}{'; ' if missing and extra else ''}{_listed('not known', extra)}"
            )
        for name, parameter in module.named_parameters():
            if state[name].shape != parameter.shape:
                raise ValueError(
                    f"{name} of {self.path} should be {tuple(parameter.shape)} by its config.json, "
                    f"got {tuple(state[name].shape)}"
                )
        _assign(module, state)
        return fuse(module).eval()


class _Unfilled(TorchFunctionMode):
    """Leaves parameters as they are made, in memory that nobody has touched. The meta device would do too, but torch
    loads its compiler for it."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init" or func in (Tensor.normal_, Tensor.uniform_):
            return args[0] if args else kwargs["tensor"]
        return (torch.empty if func in (torch.randn, torch.rand) else func)(*args, **kwargs)


def _assign(module: nn.Module, state: dict[str, Tensor]) -> None:
    """Put the tensors in the parameters' places; parameters that were shared stay shared."""
    made: dict[int, nn.Parameter] = {}
    for name, old in list(module.named_parameters(remove_duplicate=False)):
        owner, _, last = name.rpartition(".")
        if id(old) not in made:
            made[id(old)] = nn.Parameter(state[name], requires_grad=False)
        setattr(module.get_submodule(owner), last, made[id(old)])


def _listed(what: str, names: list[str]) -> str:
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"{what}: {shown}" if names else ""
