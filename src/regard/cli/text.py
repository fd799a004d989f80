"""The input of a command: a text read by a model, a saved capture, or a file of weights."""

import argparse
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from regard import models
from regard.cli.options import MODELS, WEIGHTS
from regard.models import store
from regard.models.catalog import find
from regard.progress import display, report

if TYPE_CHECKING:
    from torch import nn

    from regard import AttentionMatrix, Capture
    from regard.inspection.weights_file import WeightsFile
    from regard.models.text import TextEncoder, TextGenerator

TEXTS = (".txt", ".md", ".rst", ".tex", ".json", ".jsonl", ".html", ".py", ".log", ".xml", ".yaml", ".yml", ".toml")
BINARY = (  # suffixes of files that hold neither a text nor weights that can be opened
    *(".bin", ".ckpt", ".feather", ".gguf", ".h5", ".hdf5", ".joblib", ".mat", ".onnx", ".parquet", ".pickle", ".pkl"),
    *(".doc", ".docx", ".epub", ".gz", ".jpeg", ".jpg", ".odt", ".pdf", ".png", ".rtf", ".tar", ".xlsx", ".zip"),
)
NAME_ANOTHER = "name a file that is there (or, if these are the words to read, pipe them in: --file -)"
LONGEST_PATH = 1024  # characters of a text that may be the name of a file
_PATH = re.compile(r"(~|\.{1,2})?[/\\]|[A-Za-z]:[/\\]|.*[/\\][^/\\]*\.[A-Za-z]\w{0,8}$")  # how a path is written


def captured(args: argparse.Namespace) -> "Capture":
    """The attention of the model over the text, or the capture of a file."""
    if weights_path(args) is not None:
        from regard.inspection.capture import Capture

        opened, path = opened_weights(args), weights_path(args)
        if not isinstance(opened, Capture):
            raise ValueError(
                f"{path} holds weights, not the layers of a model; look at them with: regard map {path}, or open it "
                f"with regard.load({path!r})"
            )
        return opened
    text = _text(args)  # first: a model may have to be downloaded
    name = args.model or MODELS[0]
    with display(lines=True, patience=0.0 if sys.stderr.isatty() else None):
        report(f"loading {name}", 0, 0, "model")
        return read(_model(name), text, name, args.sample)


def weights_path(args: argparse.Namespace) -> str | None:
    """The file of a saved capture or of weights, if that is what is named."""
    path = args.text if args.file is None else args.file
    if path is None or args.sample is not None or (args.text is not None and args.file is not None):
        return None
    suffixes = [suffix for suffix in WEIGHTS if suffix != ".csv" or args.file is None]  # --file reads a csv as a text
    if not path.lower().endswith(tuple(suffixes)) or len(path) >= LONGEST_PATH:
        return None
    if args.model is not None:
        raise ValueError(f"{path} holds what a model attended to; leave --model {args.model} out")
    return str(path)


def opened_weights(args: argparse.Namespace) -> "Capture | AttentionMatrix | WeightsFile":
    """What the file that is named holds."""
    from regard.inspection.load import open_file

    path = weights_path(args)
    assert path is not None
    if not _is(Path.exists, path):
        raise ValueError(f"there is no file {path}; {NAME_ANOTHER}")
    return open_file(path, getattr(args, "array", None))


def source(args: argparse.Namespace) -> str:
    """What is read, in a few words."""
    if args.sample is not None:
        return "sample"
    if args.file == "-":
        return "standard input"
    if args.file is not None or _names_file(args.text):
        return Path(args.file or args.text).name
    return str(args.text)[:60]


def read(model: "TextEncoder | TextGenerator", text: str, name: str, count: int | None = None) -> "Capture":
    """The attention of a model over a text, or over its first `count` tokens."""
    import torch

    from regard.inspection.capture import capture
    from regard.inspection.capture.text import encoded, tokens_of

    (row,) = encoded(model.tokenizer, [text])
    if count is not None and not 1 <= count <= len(row.ids):
        raise ValueError(f"--sample takes 1 to {len(row.ids):,} tokens for {name}, got {count:,}")
    ids = row.ids[:count]
    if model.reach is not None and len(ids) > model.reach:
        longer = "" if name == "smollm2" else ", or take --model smollm2, which reads 8,192"
        raise ValueError(f"{name} reads up to {model.reach:,} tokens, the text has {len(ids):,}; shorten it{longer}")
    inputs = torch.tensor([ids], device="cpu", dtype=torch.int64)
    with torch.inference_mode(), _reporting_layers(model.model, f"reading {len(ids):,} tokens"):
        found = capture(model.model, inputs, tokens=tokens_of(model.tokenizer, ids))
    found.name = model.name
    return found


@contextmanager
def _reporting_layers(model: "nn.Module", description: str) -> Iterator[None]:
    """Report each attention layer of a model when it has run."""
    from regard.nn import MultiHeadAttention

    layers = [module for module in model.modules() if isinstance(module, MultiHeadAttention)]
    done = itertools.count(1)

    def ran(*_: object) -> None:
        report(description, next(done), len(layers), "layers")

    report(description, 0, len(layers), "layers")
    hooks = [layer.register_forward_hook(ran) for layer in layers]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _text(args: argparse.Namespace) -> str:
    if sum(given is not None for given in (args.text, args.file, args.sample)) != 1:
        raise ValueError('give a text, as in "The cat sleeps on the mat", or --file FILE, or --sample N; one of them')
    if args.sample is not None:
        text = models.sample()
    elif args.file == "-":
        text = sys.stdin.read()
    elif args.file is not None or _names_file(args.text):
        text = _contents(args.file or args.text)
    else:
        text = str(args.text)
    if not text.strip():
        raise ValueError("the text is empty; write a word")
    return text


def _names_file(text: str) -> bool:
    """Whether a text is the name of a file: of one that is there, or a word that is written as the name of one."""
    if len(text) >= LONGEST_PATH:
        return False
    if _is(Path.is_file, text) or (("/" in text or os.sep in text) and _is(Path.is_dir, text)):
        return True
    return len(text.split()) == 1 and (text.lower().endswith((*TEXTS, *BINARY)) or _PATH.match(text) is not None)


def _is(check: Callable[[Path], bool], path: str) -> bool:
    """The check of a path; False for what no file can be called."""
    try:
        return check(Path(path))
    except (OSError, ValueError):
        return False


def _contents(path: str) -> str:
    if _is(Path.is_dir, path):
        raise ValueError(f"{path} is a folder; name a file of text, or write the words to read")
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        kinds = ", ".join(WEIGHTS)
        raise ValueError(
            f"{path} is not a text in UTF-8: byte {error.start:,} cannot be read; weights are opened from {kinds}"
        ) from error
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}; {NAME_ANOTHER}") from error


def _model(name: str) -> "TextEncoder | TextGenerator":
    """A model by its name or hub id, downloaded first if need be, or from a folder."""
    from regard.models.load import load

    if name in {model.name for model in models.known()} and store.state(find(name)) != "yes":
        with display(lines=True, patience=0.0):
            store.ensure(find(name))
    return load(name)
