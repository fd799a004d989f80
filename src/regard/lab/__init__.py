"""The lab: each experiment is a question, a computation, a table with uncertainty, a picture and a finding."""

import difflib
import importlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch

from regard.lab.report import Report
from regard.lab.setting import Setting
from regard.progress import PlainCallback, reporting_to_user

__all__ = ["EXPERIMENTS", "TIMED", "Report", "names", "run"]

# name: what it asks; the code is `run(setting)` in regard.lab.<name>, a hyphen being an underscore
EXPERIMENTS = {
    "scaling": "why scores are divided by √d_k: entropy and gradients against the width",
    "variance": "how large q · k gets, and when softmax saturates",
    "saturation": "what large scores do to softmax and its derivative",
    "temperature": "how τ moves attention between one key and all keys",
    "dropout": "what attention dropout drops, what it keeps, and what it is good for",
    "patterns": "what full, causal, local and other masks show, what they save, and what they cost",
    "heads": "how alike the heads of a layer are, and what several learn that one cannot",
    "symmetry": "what queries and keys lose when they share one projection",
    "positions": "what attention knows of order, how each scheme tells it, and how far that reaches",
    "scores": "what the six score functions cost, what each learns, and when to use which",
    "tricks": "what flash attention, chunks and a cache of keys and values save, and what they cost",
    "ffn": "what attention and the feed-forward layer cost, and what each learns alone",
    "rows": "rows of weights sum to 1, columns do not; shared projections and symmetry",
    "projection": "what W_O adds to heads side by side, and what each head is worth",
    "self-cross": "what changes when keys and values come from another sequence",
    "context": "how one word gets another vector in another sentence, and which heads see to it",
    "language": "whether heads of real models link verbs to subjects and words to synonyms",
    "translation": "whether a model that sees sentence pairs finds out which words belong together",
    "induction": "how two layers learn to go on with what they have seen, at any length",
    "vision": "where patches and words look when a model sees a picture, describes one or makes one",
    "why": "what attention reaches that a convolution and a recurrent net of the same size do not",
    "dimensions": "what d_model, d_k, d_v and h are in known models, and what more heads change",
}

# these measure times and run alone on the machine
TIMED = ("patterns", "scores", "tricks", "ffn", "why", "dimensions")


def names() -> tuple[str, ...]:
    """The experiments, in the order they are best read."""
    return tuple(EXPERIMENTS)


def run(name: str, *, quick: bool = False, seed: int = 0, progress: PlainCallback | None = None) -> Report:
    """Run one experiment. `quick` takes seconds and gives wider intervals; one seed, one set of numbers."""
    check_name(name)
    setting = Setting(quick, seed)
    with _torch_defaults(), reporting_to_user(progress, "", "steps"):
        report: Report = importlib.import_module(f"regard.lab.{name.replace('-', '_')}").run(setting)
    return report


@contextmanager
def _torch_defaults() -> Iterator[None]:
    """float32 on the CPU, whatever defaults the program has set: the experiments make their tensors by these."""
    dtype, elsewhere = torch.get_default_dtype(), torch.get_default_device().type != "cpu"
    torch.set_default_dtype(torch.float32)
    try:
        with torch.device("cpu") if elsewhere else nullcontext():
            yield
    finally:
        torch.set_default_dtype(dtype)


def check_name(name: str) -> None:
    """Refuse a name that no experiment has."""
    if name not in EXPERIMENTS:
        near = difflib.get_close_matches(name, EXPERIMENTS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(EXPERIMENTS)}, and all"
        raise ValueError(f"the lab has no experiment {name!r}; {hint}")
