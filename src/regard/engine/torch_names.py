"""Private names of torch that regard uses, by feature. A newer, untested release that lacks some is reported.

The names hold from torch 2.9 to the newest release in docs/versions.md; `make versions` runs the tests on both.
"""

import importlib
import re
import warnings

import torch

NEWEST = (2, 15)  # of docs/versions.md
PRIVATE = {
    "attend under torch.func": ("_C._functorch.peek_interpreter_stack", "_C._functorch.get_interpreter_stack"),
    "attend under torch.compile": (
        "_C._ForceDispatchKeyGuard",
        "_C._dispatch_tls_local_include_set",
        "_C._dispatch_tls_local_exclude_set",
    ),
    "accelerating": (
        "_C.DisableTorchFunction",
        "_C._is_torch_function_enabled",
        "_C._is_tracing",
        "_C._len_torch_dispatch_stack",
        "_fused_sdp_choice",
    ),
    "capture and intervene": (
        "_C._current_graph_task_id",
        "_compile._disable_dynamo",
        "_higher_order_ops.flex_attention",
        "ops.aten._native_multi_head_attention.default",
        "ops.aten._transformer_encoder_layer_fwd.default",
        "overrides._get_current_function_mode_stack",
    ),
    "engine 'flex' on a CPU": ("nn.attention.flex_attention._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG",),
}


def missing_names() -> dict[str, list[str]]:
    """The names that this torch lacks, by feature."""
    found = {feature: [name for name in names if not _exists(name)] for feature, names in PRIVATE.items()}
    return {feature: names for feature, names in found.items() if names}


def report_missing() -> None:
    """Warn of missing names; a tested release is not looked at."""
    release = re.match(r"(\d+)\.(\d+)", torch.__version__)
    if release is None or tuple(map(int, release.groups())) <= NEWEST or not (missing := missing_names()):
        return
    features = "; ".join(f"{feature} (torch.{', torch.'.join(names)})" for feature, names in missing.items())
    newest = ".".join(map(str, NEWEST))
    warnings.warn(
        f"torch {torch.__version__} is newer than {newest}, the newest that this regard was tested with, and lacks "
        f"what these need: {features}; take a newer regard, or torch {newest}",
        stacklevel=2,
    )


def _exists(name: str) -> bool:
    """Whether torch has the attribute; modules on the way are imported."""
    place: object = torch
    path = "torch"
    for part in name.split("."):
        path = f"{path}.{part}"
        if not hasattr(place, part):
            try:
                place = importlib.import_module(path)
            except ImportError:
                return False
        else:
            place = getattr(place, part)
    return True
