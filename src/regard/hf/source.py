"""What a class's source says about its attention: whether it asks transformers' interface for the function to call."""

import ast
import inspect
import sys
import textwrap
from enum import Enum
from functools import cache

from torch import nn

INTERFACE = "ALL_ATTENTION_FUNCTIONS"
INTERFACES = (INTERFACE, "ALL_MASK_ATTENTION_FUNCTIONS")
FUSED = ("scaled_dot_product_attention", "multi_head_attention_forward", "flex_attention")
# attention by name that weighs no keys: recurrent, or over sampled points
OTHER_KINDS = ("linear", "lightning", "delta", "rwkv", "deformable")


class Kind(Enum):
    """How a module takes part in attention."""

    NONE = "none"
    SERVES = "asks the interface"
    BYPASSES = "computes attention itself"
    NAMED = "is named attention, but neither asks nor shows a softmax"
    HIDDEN = "has no source to read"


def kind(module: nn.Module) -> Kind:
    """What the module's class shows."""
    cls: type = type(module)
    return kind_of(cls)


@cache
def kind_of(cls: type) -> Kind:
    """What the class and those it inherits from, torch's aside, show."""
    if issubclass(cls, nn.MultiheadAttention | nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
        return Kind.BYPASSES
    own = [base for base in cls.__mro__ if issubclass(base, nn.Module) and not base.__module__.startswith("torch.")]
    trees = [tree(base) for base in own]
    name = cls.__name__.lower()
    attention = "attention" in name or "attn" in name
    if any(each is None for each in trees) and attention:
        return Kind.HIDDEN
    nodes = [node for each in _methods([each for each in trees if each is not None]) for node in ast.walk(each)]
    if any(_asks(node) for node in nodes):
        return Kind.SERVES
    called = [_called(node) for node in nodes if isinstance(node, ast.Call)]
    if any(call in FUSED for call in called) or any(_is_interface(node) for node in nodes):
        return Kind.BYPASSES
    if not attention or any(other in name for other in OTHER_KINDS):
        return Kind.NONE
    if any("softmax" in call.lower() for call in called):
        return Kind.BYPASSES
    return Kind.NAMED if name.endswith(("attention", "attn")) else Kind.NONE


@cache
def tables(cls: type) -> tuple[str, ...]:
    """Tables from which the class, or what it is made of, picks by `config._attn_implementation`."""
    picked: list[str] = []
    for base in cls.__mro__:
        top = _top(base.__module__) if base.__module__ in sys.modules else {}
        for name in _reached(base.__name__, top):
            nodes = list(ast.walk(top[name]))
            chosen = _chosen(nodes)
            for node in nodes:
                if isinstance(node, ast.Subscript) and (
                    _is_implementation(node.slice) or getattr(node.slice, "id", "") in chosen
                ):
                    picked.append(ast.unparse(node.value))
    return tuple(dict.fromkeys(name for name in picked if name not in INTERFACES))


def tree(cls: type) -> ast.AST | None:
    """The class's syntax tree, or None where its source cannot be read."""
    definition = _top(cls.__module__).get(cls.__qualname__)
    if isinstance(definition, ast.ClassDef):
        return definition
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    except (OSError, TypeError, SyntaxError):
        return None


@cache
def _top(module: str) -> dict[str, ast.AST]:
    """What stands at the top of a module's file, by name."""
    try:
        body = ast.parse(inspect.getsource(sys.modules[module])).body
    except (OSError, TypeError, SyntaxError, KeyError):
        return {}
    by_name: dict[str, ast.AST] = {}
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            by_name[node.name] = node
        elif isinstance(node, ast.Assign):
            by_name.update({target.id: node.value for target in node.targets if isinstance(target, ast.Name)})
    return by_name


def _reached(start: str, top: dict[str, ast.AST]) -> set[str]:
    """The names at the top of a file that one of them uses, directly or not."""
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        name = waiting.pop()
        if name in top and name not in seen:
            seen.add(name)
            waiting += [node.id for node in ast.walk(top[name]) if isinstance(node, ast.Name)]
    return seen


def _methods(trees: list[ast.AST]) -> list[ast.AST]:
    """What runs: a method that a subclass overrides counts only if that one calls it with `super()`."""
    running: list[ast.AST] = []
    overridden: set[str] = set()
    for cls in trees:
        body = cls.body if isinstance(cls, ast.ClassDef) else [cls]
        own = [node for node in body if getattr(node, "name", None) not in overridden]
        running += own
        for node in own:
            calls = (inner for inner in ast.walk(node) if isinstance(inner, ast.Call))
            if isinstance(node, ast.FunctionDef) and not any(_called(call) == "super" for call in calls):
                overridden.add(node.name)
    return running


def _asks(node: ast.AST) -> bool:
    """`ALL_ATTENTION_FUNCTIONS.get_interface(name, …)`, `.get(name, …)` or `[name]`, the name not being a constant."""
    match node:
        case ast.Call(func=ast.Attribute(value=owner, attr="get_interface" | "get"), args=[name, *_]):
            return _is_interface(owner) and not isinstance(name, ast.Constant)
        case ast.Subscript(value=owner, slice=name):
            return _is_interface(owner) and not isinstance(name, ast.Constant)
    return False


def _is_interface(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == INTERFACE


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _chosen(nodes: list[ast.AST]) -> set[str]:
    """Variables that are set from `config._attn_implementation`, directly or by a conditional expression."""
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Assign) and any(_is_implementation(inner) for inner in _decided(node.value)):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def _decided(node: ast.expr) -> list[ast.expr]:
    """The values that `a if … else b` may have."""
    return [*_decided(node.body), *_decided(node.orelse)] if isinstance(node, ast.IfExp) else [node]


def _is_implementation(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "_attn_implementation"
