"""Load: a folder becomes a model that runs on `regard.nn`."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regard.models.families import bert, gpt2, llama
from regard.models.families.bert import Bert
from regard.models.families.folder import Folder
from regard.models.store import get, path
from regard.models.text import TextEncoder, TextGenerator, tokenizer
from regard.nn import LanguageModel

FAMILIES = {kind: family for family in (bert, gpt2, llama) for kind in family.KINDS}


def build(folder: str | Path) -> Bert | LanguageModel:
    """The model of a local folder (config.json and safetensors): BERT-, GPT-2- or Llama-type."""
    opened = Folder.open(folder)
    if opened.kind not in FAMILIES:
        raise ValueError(
            f"{opened.path} holds a model of type {opened.kind!r}; known are {', '.join(FAMILIES)}. "
            "Others run with transformers after regard.hf.register()"
        )
    with _understood(opened.path):
        model: Bert | LanguageModel = FAMILIES[opened.kind].build(opened)
    return model


def load(folder: str | Path) -> TextEncoder | TextGenerator:
    """The model of a local folder with its tokenizer (tokenizer.json)."""
    at = Path(folder).expanduser()
    model, config = build(at), Folder.open(at).config
    with _understood(at):
        words = tokenizer(at)
        if isinstance(model, Bert):
            longest = _json(at / "sentence_bert_config.json").get("max_seq_length") or len(model.places.weight)
            pad = int(config.get("pad_token_id") or 0)
            return TextEncoder(model, words, int(longest), pad=pad, pooling=_pooling(at)).eval()
        ends = _json(at / "generation_config.json").get("eos_token_id", config.get("eos_token_id"))
        stop = frozenset(map(int, ends if isinstance(ends, list) else [] if ends is None else [ends]))
        reach = config.get("max_position_embeddings") or config.get("n_positions")
        return TextGenerator(model, words, stop, reach=None if reach is None else int(reach)).eval()


@contextmanager
def _understood(folder: Path) -> Iterator[None]:
    """Whatever damaged files lead to is a ValueError that names the folder."""
    try:
        yield
    except (ValueError, OSError, ImportError):
        raise
    except Exception as error:
        text = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        raise ValueError(f"the files of {folder} do not make a model ({text}); fetch it again") from error


def minilm() -> TextEncoder:
    """MiniLM, a BERT-type encoder of sentences: 6 layers, 12 heads; downloaded first if it is not here."""
    model = load(_here("minilm"))
    assert isinstance(model, TextEncoder)
    return model


def smollm2() -> TextGenerator:
    """SmolLM2 135M, a Llama-type language model: 30 layers, 9 heads over 3; downloaded first if it is not here."""
    model = load(_here("smollm2"))
    assert isinstance(model, TextGenerator)
    return model


def _here(name: str) -> Path:
    """The folder of a model, downloaded first if it is not there."""
    try:
        return path(name)
    except FileNotFoundError:
        return get(name)


def _pooling(folder: Path) -> str:
    """How sentence-transformers' settings make one vector of many; the mean if there are none."""
    settings = [name for name, value in _json(folder / "1_Pooling" / "config.json").items() if value is True]
    modes = [name.removeprefix("pooling_mode_") for name in settings if name.startswith("pooling_mode_")]
    known = {"mean_tokens": "mean", "cls_token": "first"}
    if len(modes) > 1 or any(mode not in known for mode in modes):
        raise ValueError(f"{folder} pools by {', '.join(modes)}; known are {', '.join(known)}, one at a time")
    return known[modes[0]] if modes else "mean"


def _json(file: Path) -> dict[str, Any]:
    settings = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    if not isinstance(settings, dict):
        raise ValueError(f"{file} must hold an object of settings, got {type(settings).__name__}")
    return settings
