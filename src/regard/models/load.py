"""Load: a folder, or a model of a hub by its id, becomes a model that runs on `regard.nn`."""

import json
import re
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regard.models.catalog import known
from regard.models.families import bert, gpt2, llama
from regard.models.families.bert import Bert
from regard.models.families.folder import Folder
from regard.models.optional import need
from regard.models.store import get, path
from regard.models.text import TextEncoder, TextGenerator, tokenizer
from regard.nn import LanguageModel

# A family is a module with KINDS, values of `model_type` in config.json, and build(folder).
FAMILIES = {kind: family for family in (bert, gpt2, llama) for kind in family.KINDS}
HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")
HUB_FILES = ["*.json", "model*.safetensors", "vocab.txt", "merges.txt"]  # nothing pickled, nothing for other libraries


def build(model: str | Path) -> Bert | LanguageModel:
    """The model alone of what `load` takes (config.json and safetensors): BERT-, GPT-2- or Llama-type."""
    opened = _opened(_located(model))
    with _understood(opened.path):
        made: Bert | LanguageModel = FAMILIES[opened.kind].build(opened)
    return made


def load(model: str | Path) -> TextEncoder | TextGenerator:
    """A model with its tokenizer: the name of one that regard knows, a local folder, or a hub id, "org/name".

    A hub id that is no folder here is fetched by huggingface_hub into its own cache, once.
    """
    loaded = _loaded(_located(model))
    loaded.name = name_of_path(model)
    return loaded


def name_of_path(model: str | Path) -> str:
    """A name or hub id as it is, a folder by its last part."""
    return model if isinstance(model, str) and not Path(model).is_dir() else Path(model).resolve().name


def _loaded(at: Path) -> TextEncoder | TextGenerator:
    built, config = build(at), Folder.open(at).config
    with _understood(at):
        words = tokenizer(at)
        if isinstance(built, Bert):
            longest = _json(at / "sentence_bert_config.json").get("max_seq_length") or len(built.places.weight)
            pad = int(config.get("pad_token_id") or 0)
            return TextEncoder(built, words, int(longest), pad=pad, pooling=_pooling(at)).eval()
        ends = _json(at / "generation_config.json").get("eos_token_id", config.get("eos_token_id"))
        stop = frozenset(map(int, ends if isinstance(ends, list) else [] if ends is None else [ends]))
        reach = config.get("max_position_embeddings") or config.get("n_positions")
        return TextGenerator(built, words, stop, reach=None if reach is None else int(reach)).eval()


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
    model = load("minilm")
    assert isinstance(model, TextEncoder)
    return model


def smollm2() -> TextGenerator:
    """SmolLM2 135M, a Llama-type language model: 30 layers, 9 heads over 3; downloaded first if it is not here."""
    model = load("smollm2")
    assert isinstance(model, TextGenerator)
    return model


def _located(model: str | Path) -> Path:
    """The folder of a model, downloaded first if it is not there."""
    at = Path(model).expanduser()
    if not isinstance(model, str):
        return at
    names = [each.name for each in known()]
    if model in names:
        try:
            return path(model)
        except FileNotFoundError:
            return get(model)
    if at.is_dir():
        return at
    if HUB_ID.fullmatch(model) is None:
        raise FileNotFoundError(
            f"{model!r} is neither a model that regard knows ({', '.join(names)}) nor a folder nor a hub id (org/name)"
        )
    return _from_hub(model)


def _from_hub(name: str) -> Path:
    """The files of a hub's model, in the cache of huggingface_hub; first the config alone, which may be refused."""
    _opened(_fetched(name, ["config.json"]))
    return _fetched(name, HUB_FILES)


def _fetched(name: str, files: list[str]) -> Path:
    need("huggingface_hub")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=files))
    except Exception as error:  # of many kinds, which differ between versions
        reason = textwrap.shorten(f"{type(error).__name__}: {error}", 200, placeholder=" …")
        raise OSError(
            f"{name} is no folder here, and the hub did not give it ({reason}); check the name and the network, or "
            f"name a folder that `hf download {name} --local-dir FOLDER` made elsewhere"
        ) from error


def _opened(folder: Path) -> Folder:
    """Refuses types that are not built here."""
    opened = Folder.open(folder)
    if opened.kind not in FAMILIES:
        raise ValueError(
            f"{opened.path} holds a model of type {opened.kind!r}; known are {', '.join(FAMILIES)}. "
            "Others run with transformers after regard.hf.register()"
        )
    return opened


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
