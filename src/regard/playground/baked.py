"""Numbers of real models for chapters of the playground: heads of MiniLM, and the translation model of the lab.

`python -m regard.playground.baked` writes data/10-heads.json and data/13-self-and-cross.json again. Arrays are base64
of float16.
"""

import base64
import json
from typing import Any

import torch
from torch import Tensor

from regard import models
from regard.inspection.capture.run import capture
from regard.inspection.matrix.products import products
from regard.lab.setting import Setting
from regard.lab.training import train
from regard.lab.translation import grammar, training_task
from regard.lab.translation.grammar import Pair
from regard.lab.translation.task import CROSS, DECODER, ENCODER, SCALED, translations
from regard.playground.document import DATA

FILE, TRANSLATED = DATA / "10-heads.json", DATA / "13-self-and-cross.json"
LAYERS = (0, 1, 5)  # of six: the first two have heads for places, the last one for meaning
SENTENCES = (  # a text, the word that is compared, and which text has it in another sense
    ("We sat on the bank of the river.", "bank", 1),
    ("The bank gave him a loan.", "bank", 0),
    ("A bat flew out of the dark cave.", "bat", 3),
    ("He hit the ball with the bat.", "bat", 2),
    ("The cat sleeps on the mat because it is warm.", "it", None),
)
PLACES = {"encoder": ENCODER, "decoder": DECODER, "cross": CROSS}


def halves(numbers: Tensor) -> str:
    """Numbers as base64 of little-endian float16."""
    return base64.b64encode(numbers.detach().cpu().half().contiguous().numpy().astype("<f2").tobytes()).decode("ascii")


@torch.no_grad()
def heads() -> dict[str, Any]:
    """What chapter 10 reads. Queries, keys and values are (token, head · width); `hidden` are the vectors of the word
    before the first layer and after each; `projections` have W_O as (output, head · width)."""
    encoder = models.minilm()
    blocks: Any = encoder.model.encoder.blocks
    attention = [block.attention for block in blocks]
    read = [_sentence(encoder, text, word, other) for text, word, other in SENTENCES]
    projections = {
        str(n): {"weight": halves(attention[n].out_proj.weight), "bias": halves(attention[n].out_proj.bias)}
        for n in LAYERS
    }
    return {
        "model": "all-MiniLM-L6-v2",
        "layers": list(LAYERS),
        "depth": len(blocks),
        "heads": attention[0].heads,
        "width": attention[0].d_k,
        "sentences": read,
        "projections": projections,
    }


def _sentence(encoder: models.TextEncoder, text: str, word: str, other: int | None) -> dict[str, Any]:
    blocks: Any = encoder.model.encoder.blocks
    entered: list[Tensor] = []
    left: list[Tensor] = []
    hooks = [block.register_forward_pre_hook(lambda _, given: entered.append(given[0][0])) for block in blocks]
    hooks.append(blocks[-1].register_forward_hook(lambda _, __, out: left.append(out[0])))
    try:
        tokens = list(capture(encoder, text).tokens)
    finally:
        for hook in hooks:
            hook.remove()
    place = tokens.index(word)
    layers = {
        str(n): {name: halves(getattr(blocks[n].attention, f"{name}_proj")(entered[n])) for name in ("q", "k", "v")}
        for n in LAYERS
    }
    hidden = torch.stack([states[place] for states in [*entered, *left]])
    return {"text": text, "tokens": tokens, "word": place, "other": other, "layers": layers, "hidden": halves(hidden)}


def translator() -> torch.nn.Module:
    """The model of the first run of `regard lab translation` with the scaled dot product and seed 0; trained, or from
    the cache."""
    setting = Setting()
    return train(training_task(setting, SCALED, setting.seeds(1)[0])).model


@torch.no_grad()
def translated(model: torch.nn.Module) -> dict[str, Any]:
    """What chapter 13 reads: two sentences that no training had, with queries and keys as (place, width) while the
    right translation is chosen, and the words that the model itself writes.

    Place t of the decoder belongs to the step that chooses French word t: it has read a start and the words before.
    """
    pairs = {"cat": grammar.cat(), "friends": grammar.friends().pair()}
    return {name: _pair(model, pair) for name, pair in pairs.items()}


def _pair(model: torch.nn.Module, pair: Pair) -> dict[str, Any]:
    captured = capture(model, grammar.sources([pair]), grammar.targets([pair])[:, :-1])
    english, french = grammar.labels(pair)
    count = {"English": len(english), "French": len(french)}
    attentions, width = {}, 0
    for name, place in PLACES.items():
        made = products(captured[place.path])
        width = made.width
        attentions[name] = {
            "q": halves(made.query[0, : count[place.queries]]),
            "k": halves(made.key[0, : count[place.keys]]),
        }
    first, *others = translations(model, [pair])[0]
    written = [first.capitalize(), *others]
    return {"english": english, "french": french, "written": written, "width": width, "attentions": attentions}


def write() -> None:
    """Compute the numbers again and write them to the package's folder."""
    DATA.mkdir(exist_ok=True)
    for path, numbers in ((FILE, heads()), (TRANSLATED, translated(translator()))):
        path.write_text(json.dumps(numbers, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
