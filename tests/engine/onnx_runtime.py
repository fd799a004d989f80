"""Export to ONNX and run it in ONNX Runtime."""

import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

DYNAMIC = torch.export.Dim.DYNAMIC
EXACT = 1e-5  # what the documentation promises for float32
IGNORED = (
    "ignore:.*LeafSpec.*:FutureWarning",
    "ignore:Exporting a model while it is in training mode:UserWarning",
    "ignore:.*torch.jit.script",
    "ignore:.*GraphProto.*:DeprecationWarning",
)


class Exported:
    """A graph in ONNX Runtime; a call gives the list of its results."""

    def __init__(self, program: Any) -> None:
        import onnxruntime

        self.operators = [node.op_type for node in program.model.graph]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            program.save(path)
            self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def __call__(self, *inputs: Tensor) -> list[Tensor]:
        names = {given.name for given in self.session.get_inputs()}  # what no result needs is left out of the graph
        named = {name: tensor.detach().numpy() for name, tensor in zip(self.names, inputs, strict=True)}
        results = self.session.run(None, {name: array for name, array in named.items() if name in names})
        return [torch.from_numpy(result) for result in results]

    names: tuple[str, ...] = ()


def exported(
    module: nn.Module | torch.export.ExportedProgram,
    inputs: Sequence[Tensor],
    dynamic_shapes: Any = None,
    opset: int | None = None,
    optimize: bool = True,
    train: bool = False,
) -> Exported:
    """The module by plain torch.onnx.export, without any call of regard's."""
    if isinstance(module, nn.Module) and not train:
        module.eval()
    logging.disable(logging.ERROR)  # torch names what it did not find (torchvision), and prints graphs that failed
    try:
        program = torch.onnx.export(
            module,
            () if isinstance(module, torch.export.ExportedProgram) else tuple(inputs),
            dynamo=True,
            dynamic_shapes=dynamic_shapes,
            opset_version=opset,
            optimize=optimize,
            verbose=False,
        )
    finally:
        logging.disable(logging.NOTSET)
    assert program is not None
    run = Exported(program)
    run.names = tuple(str(given.name) for given in program.model.graph.inputs)
    return run


def assert_same(found: Tensor, right: Tensor, what: str = "result") -> None:
    """Equal to EXACT; a NaN is never right, infinities must be the same."""
    right = right.detach()
    assert not found.isnan().any(), f"{what}: NaN"
    torch.testing.assert_close(
        found.double(), right.double(), atol=EXACT, rtol=EXACT, msg=lambda text: f"{what}: {text}"
    )
