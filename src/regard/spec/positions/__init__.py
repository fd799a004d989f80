"""Position schemes that change the inputs of attention: a table to add, or a rotation of queries and keys.

Schemes that change the logits instead are biases (`ALiBi`, `T5`, `Distance`) and scores (`Relative`).
"""

from regard.spec.positions.rotary import rotary, rotary_tables, rotate
from regard.spec.positions.sinusoidal import sinusoidal
from regard.spec.positions.stretch import NTK, Linear, Llama3, Stretch, YaRN, yarn_scale

__all__ = [
    "NTK",
    "Linear",
    "Llama3",
    "Stretch",
    "YaRN",
    "rotary",
    "rotary_tables",
    "rotate",
    "sinusoidal",
    "yarn_scale",
]
