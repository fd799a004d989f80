"""The commands and their options. This file imports nothing heavy: `--help` and a wrong option answer at once."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

SAVED = ".safetensors"  # the ending of a saved capture
WEIGHTS = (".npy", ".npz", ".csv", SAVED, ".pt", ".pth")  # of files with weights
MODELS = ("minilm", "smollm2")
KINDS = ("heatmap", "lines", "alignment", "overview", "profiles", "statistics")
FORMATS = ("text", "markdown", "latex", "html", "json")
ALL_EXPERIMENTS = "all"
LAB_FOLDER = Path("regard-lab")
QUICK_SECONDS, SECONDS = 2.0, 15.0  # of timing per case
DTYPES = ("float32", "float64", "bfloat16", "float16")
PEERS = ("sdpa", "flex", "eager", "compiled", "keras")


class Command(NamedTuple):
    """One line of help, and the function that adds the options. The code is `run(args) -> int` in regard.cli.<name>."""

    help: str
    add_options: Callable[[argparse.ArgumentParser], None]


def text(parser: argparse.ArgumentParser) -> None:
    """The text that a model reads, and the model."""
    parser.add_argument(
        "text",
        nargs="?",
        metavar="TEXT",
        help=f"what the model reads; or a text file, a saved capture, FILE{SAVED}, or weights ({' '.join(WEIGHTS)})",
    )
    parser.add_argument("--file", metavar="FILE", help="read the text from a file; - is standard input")
    parser.add_argument(
        "--sample", type=int, metavar="N", help="the first N tokens of a long text that comes with regard"
    )
    parser.add_argument(
        "--model", metavar="NAME", help=f"{', '.join(MODELS)}, a folder, or a hub id, ORG/NAME ({MODELS[0]})"
    )


def comparison(parser: argparse.ArgumentParser) -> Any:
    """What something is compared with."""
    comparing = parser.add_argument_group("compare", "one less the other, where they have one shape")
    comparing.add_argument("--compare", metavar="L[:H]", help="another layer, or head of it, as 3 or 3:1")
    comparing.add_argument("--compare-model", metavar="NAME", help="another model, that reads the same text")
    comparing.add_argument("--compare-text", metavar="TEXT", help="another text, or a saved capture")
    return comparing


def see(parser: argparse.ArgumentParser) -> None:
    """What to read, which layer and head, and where the picture goes."""
    text(parser)
    parser.add_argument("--layer", type=int, metavar="N", help="a layer, counted from 0; -1 is the last (all)")
    parser.add_argument("--head", type=int, metavar="N", help="a head of the layer, counted from 0 (all)")
    parser.add_argument(
        "--save", metavar="FILE", help="write it: png svg pdf html safetensors; a layer or head also as npz csv"
    )
    parser.add_argument("--json", action="store_true", help="print the weights as JSON")
    comparing = comparison(parser)
    comparing.add_argument("--side-by-side", action="store_true", help="both, instead of their difference")
    picture = parser.add_argument_group("the picture")
    picture.add_argument(
        "--kind", choices=KINDS, metavar="KIND", help=f"{', '.join(KINDS)} (heatmap of a layer or head, else overview)"
    )
    picture.add_argument("--title", metavar="TEXT", help="instead of model, layer, head and text")
    picture.add_argument("--colormap", metavar="NAME", help="one of matplotlib's, such as viridis or gray_r (regard)")
    picture.add_argument("--tokens", type=_range, metavar="A:B", help="only tokens A to B − 1, as in 3:20")
    picture.add_argument("--hide-special", action="store_true", help="leave out [CLS], [SEP], <s> and the like")
    picture.add_argument("--renormalize", action="store_true", help="scale the weights left in each row to a sum of 1")
    parser.add_argument("--array", metavar="NAME", help="which array of a file with several, such as weights.npz")


def picture_options(args: argparse.Namespace) -> dict[str, Any]:
    """The options of a picture that are given, as `show` and `save` take them."""
    given = {name: getattr(args, name) for name in ("kind", "title", "colormap", "tokens")}
    flags = {name: True for name in ("hide_special", "renormalize") if getattr(args, name)}
    return {name: value for name, value in given.items() if value is not None} | flags


def heads(parser: argparse.ArgumentParser) -> None:
    """What to read, and how the table is shown."""
    text(parser)
    parser.add_argument("--sort", metavar="COLUMN", help="the rows with the largest first (layer by layer)")
    parser.add_argument("--top", type=int, metavar="N", help="only the first N rows (all)")
    parser.add_argument("--save", metavar="FILE", help="write the table: csv, json or txt")
    parser.add_argument("--json", action="store_true", help="print the table as JSON")


def explain(parser: argparse.ArgumentParser) -> None:
    """What to explain, which row of it, and how it is written."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "input",
        nargs="?",
        metavar="SENTENCE | FILE.json",
        help="a sentence, whose words get small made-up vectors; or an attention as JSON; - is standard input",
    )
    what.add_argument("--example", action="store_true", help="three words of width 2, identity projections")
    parser.add_argument(
        "--model", metavar="NAME", help=f"a head of a model that reads the sentence: {', '.join(MODELS)}"
    )
    parser.add_argument("--layer", type=int, default=0, metavar="N", help="the layer of the model; the first is 0")
    parser.add_argument("--format", choices=FORMATS, help="what is written (text, or what the ending of --out says)")
    parser.add_argument("--row", type=int, default=0, metavar="N", help="the query to work out; the first is 0")
    parser.add_argument("--head", type=int, default=0, metavar="N", help="the head to explain; the first is 0")
    parser.add_argument("--batch", type=int, default=0, metavar="N", help="the batch row to explain; the first is 0")
    parser.add_argument("--digits", type=int, default=4, metavar="N", help="decimals to show, 1 to 10 (4)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write there instead of to the terminal")


def lab(parser: argparse.ArgumentParser) -> None:
    """The name of an experiment, and how to run it."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="an experiment, or all; without it, a list of them")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions: seconds, and wider intervals")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the random numbers (0)")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help=f"also write NAME.png, .svg, .csv and .json there (all: {LAB_FOLDER})"
    )
    parser.add_argument("--format", choices=("text", "json"), default="text", help="what is printed (text)")
    parser.add_argument(
        "--record", type=Path, metavar="FILE", help="write what a full run found there; quick runs say it (full.json)"
    )


def exercise(parser: argparse.ArgumentParser) -> None:
    """The number of an exercise, and what to do with it."""
    parser.add_argument("number", nargs="?", metavar="NUMBER", help="an exercise, or its name; without it, a list")
    parser.add_argument(
        "--new", nargs="?", type=int, const=-1, metavar="SEED", help="with fresh numbers; the seed repeats them"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--answer", metavar="JSON", help="check an answer: a file that ends in .json, or the JSON itself")
    what.add_argument(
        "--hint", nargs="?", const="", metavar="PART", help="print the hint of a part, or of all parts, and no answer"
    )
    what.add_argument("--solution", action="store_true", help="print the worked answer")
    what.add_argument("--json", action="store_true", help="print all that it knows as JSON, of this exercise or of all")
    what.add_argument("--reset", action="store_true", help="forget what was right, of this exercise or of all")


def models(parser: argparse.ArgumentParser) -> None:
    """What to do, and with which model."""
    parser.set_defaults(action="list", format="text")
    actions = parser.add_subparsers(metavar="list | get | path | remove")
    listing = actions.add_parser("list", help="every model, and whether it is here (the default)")
    listing.add_argument("--format", choices=("text", "json"), default="text", help="what is printed (text)")
    listing.set_defaults(action="list")
    for action, help_text in (
        ("get", "download a model and make its folder; nothing happens if it is here"),
        ("path", "print the folder of a model that is here"),
        ("remove", "delete the folder of a model"),
    ):
        chosen = actions.add_parser(action, help=help_text, description=help_text[0].upper() + help_text[1:] + ".")
        chosen.add_argument("name", metavar="NAME", help=", ".join(MODELS))
        chosen.set_defaults(action=action)


def play(parser: argparse.ArgumentParser) -> None:
    """A file, or where the page is."""
    parser.add_argument("--export", type=Path, metavar="FILE.html", help="write it as one file that needs no network")
    parser.add_argument(
        "--figures", type=Path, metavar="DIR", help="write its figures as SVG files for documents and slides"
    )
    _page(parser)


def map_(parser: argparse.ArgumentParser) -> None:
    """What to show and where."""
    text(parser)
    parser.add_argument("--array", metavar="NAME", help="which array of a file with several, such as weights.npz")
    parser.add_argument("--demo", type=int, metavar="N", help="no model: heads of known structure over N tokens")
    parser.add_argument("--layer", type=int, default=0, metavar="N", help="which layer is shown first (0)")
    parser.add_argument("--head", type=int, default=0, metavar="N", help="which of its heads (0)")
    comparison(parser)
    parser.add_argument("--save", metavar="FILE", help="write one HTML file of the head that needs no server, and end")
    _page(parser)


def _page(parser: argparse.ArgumentParser) -> None:
    """Where a page is served."""
    parser.add_argument(
        "--port", type=int, default=0, help="where the page is, with the same address after a restart (any)"
    )
    parser.add_argument("--new-token", action="store_true", help="make the earlier addresses of the port invalid")
    parser.add_argument("--no-browser", action="store_true", help="only print the address")


def bench(parser: argparse.ArgumentParser) -> None:
    """Cases, sizes and the form of the result."""
    parser.add_argument("cases", nargs="*", metavar="CASE", help="a name, a family or a pattern such as 'train*'")
    parser.add_argument("--case", action="append", default=[], metavar="NAME", help="the same; may be repeated")
    parser.add_argument("--list", action="store_true", help="list the cases and end")
    size = parser.add_argument_group("sizes instead of the case's own; without a case, plain attention of these sizes")
    size.add_argument("--n", "--length", type=_lengths, metavar="N[,N…]", help="numbers of queries and keys")
    size.add_argument("--d", type=int, metavar="N", help="width of queries and keys")
    size.add_argument("--heads", type=int, metavar="N", help="query heads, and key heads where they are as many")
    size.add_argument("--batch", type=int, metavar="N")
    size.add_argument("--dtype", choices=DTYPES)
    size.add_argument("--mask", metavar="MASK", help="full, causal or window:BEFORE,AFTER (only without a case)")
    size.add_argument("--backward", action="store_true", help="time the gradients too (only without a case)")
    how = parser.add_argument_group("measuring")
    how.add_argument(
        "--quick",
        action="store_true",
        help=f"{QUICK_SECONDS:g} s per case, without what must be compiled and without memory",
    )
    how.add_argument("--seconds", type=float, metavar="S", help=f"of timing per case ({SECONDS:g})")
    how.add_argument("--rounds", type=int, metavar="N", help="turns that each contender gets, whatever they take")
    how.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where to run (cpu)")
    how.add_argument("--threads", type=int, metavar="N", help="as torch.set_num_threads")
    how.add_argument("--engine", action="append", help="our engines to run (auto if none is named)")
    how.add_argument("--peer", action="append", choices=PEERS, help="whom to run against (all if none is named)")
    result = parser.add_argument_group("results")
    result.add_argument("--json", nargs="?", const="-", metavar="FILE", help="all numbers; printed if no FILE is given")
    result.add_argument("--markdown", action="store_true", help="print the table in Markdown")
    result.add_argument("--plot", type=Path, metavar="FILE", help="time and rate over n, as svg, png, pdf or txt")


def _range(given: str) -> slice:
    try:
        first, last = (int(each) if each.strip() else None for each in given.split(":"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"takes a range such as 3:20, :20 or 3:; got {given!r}") from None
    return slice(first, last)


def _lengths(given: str) -> list[int]:
    try:
        lengths = [int(each) for each in given.split(",")]
    except ValueError:
        lengths = []
    if not lengths or min(lengths) < 1:
        raise argparse.ArgumentTypeError(f"takes whole numbers above 0, as in 1024,4096; got {given!r}")
    return lengths


COMMANDS = {
    "see": Command("what a model attends to in a text, as a picture", see),
    "heads": Command("what each head of a model does in a text, as a table", heads),
    "explain": Command("every step of a small attention with its numbers", explain),
    "lab": Command("experiments that reproduce the known tables", lab),
    "exercise": Command("tasks with a check and a worked answer", exercise),
    "models": Command("real models, fetched by name: list, get, path, remove", models),
    "map": Command("an attention matrix in the browser, panned and zoomed like a street map", map_),
    "play": Command("chapters in which attention is dragged, with exact numbers, in the browser", play),
    "bench": Command("time, memory and error beside plain torch", bench),
}
