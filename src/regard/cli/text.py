"""The input of a command: a text read by a model, or a saved capture."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from regard import models
from regard.cli.options import MODELS, SAVED
from regard.models import store
from regard.models.catalog import find
from regard.progress import display

if TYPE_CHECKING:
    from regard import AttentionMatrix, Capture
    from regard.models.text import TextEncoder, TextGenerator

TEXTS = (".txt", ".md", ".rst", ".tex", ".csv", ".json", ".html", ".py")  # endings that are meant as files


def captured(args: argparse.Namespace) -> "Capture":
    """The attention of the model over the text, or the capture of a file."""
    if (path := saved_path(args)) is not None:
        from regard.inspection.capture import Capture
        from regard.inspection.load import load

        loaded: Capture | AttentionMatrix = load(path)
        if not isinstance(loaded, Capture):
            raise ValueError(f"{path} holds one matrix, not the layers of a model; open it with regard.load({path!r})")
        return loaded
    text = _text(args)  # first: a model may have to be downloaded
    name = args.model or MODELS[0]
    return read(_model(name), text, name, args.sample)


def saved_path(args: argparse.Namespace) -> str | None:
    """The file of a saved capture, if that is what the text names."""
    if args.text is None or not args.text.endswith(SAVED) or (args.file, args.sample) != (None, None):
        return None
    if args.model is not None:
        raise ValueError(f"{args.text} holds what a model attended to; leave --model {args.model} out")
    return str(args.text)


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
    from regard.models.text import token_labels

    model.tokenizer.no_truncation()
    ids = model.tokenizer.encode(text).ids
    if count is not None and not 1 <= count <= len(ids):
        raise ValueError(f"--sample takes 1 to {len(ids):,} tokens for {name}, got {count:,}")
    ids = ids[:count]
    if not ids:
        raise ValueError("there is no token in the text; write a word")
    if model.reach is not None and len(ids) > model.reach:
        longer = "" if name == "smollm2" else ", or take --model smollm2, which reads 8,192"
        raise ValueError(f"{name} reads up to {model.reach:,} tokens, the text has {len(ids):,}; shorten it{longer}")
    with torch.inference_mode():
        return capture(
            model.model, torch.tensor([ids], device="cpu", dtype=torch.int64), tokens=token_labels(model.tokenizer, ids)
        )


def _text(args: argparse.Namespace) -> str:
    if sum(given is not None for given in (args.text, args.file, args.sample)) != 1:
        raise ValueError('give a text, as in "The cat sleeps on the mat", or --file FILE, or --sample N; one of them')
    if args.sample is not None:
        text = models.sample()
    elif args.file == "-":
        text = sys.stdin.read()
    elif args.file is not None or _names_file(args.text):
        text = _contents(args.file or args.text)
    elif "/" in args.text and len(args.text) < 1024 and Path(args.text).is_dir():
        raise ValueError(f"{args.text} is a folder; name a file of text, or write the words to read")
    else:
        text = str(args.text)
    if not text.strip():
        raise ValueError("the text is empty; write a word")
    return text


def _names_file(text: str) -> bool:
    """Whether a text that ends as files of text do is one word, or the name of a file that is there."""
    return text.endswith(TEXTS) and (len(text.split()) == 1 or (len(text) < 1024 and Path(text).is_file()))


def _contents(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text in UTF-8: byte {error.start:,} cannot be read") from error
    except OSError as error:
        raise ValueError(
            f"{path} cannot be read: {error.strerror}; name a file that is there (or, if these are the words to read, "
            "pipe them in: --file -)"
        ) from error


def _model(name: str) -> "TextEncoder | TextGenerator":
    """A model by its name or hub id, downloaded first if need be, or from a folder."""
    from regard.models.load import load

    if name in {model.name for model in models.known()} and store.state(find(name)) != "yes":
        with display(lines=True, patience=0.0):
            store.ensure(find(name))
    return load(name)
