"""Models by hub id, from a made-up cache or download; and tokenizers of a vocabulary without tokenizer.json."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
import transformers
from tokenizers import Tokenizer, pre_tokenizers

from regard import models
from regard.cli import main

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sleep", "##s", ",", "on", "mat"]
MERGES = [("t", "h"), ("th", "e"), ("Ġ", "c"), ("a", "t")]
TEXT = "The cat sleeps, on the mat"
TOKENS = ["[CLS]", "the", "cat", "sleep", "##s", ",", "on", "the", "mat", "[SEP]"]
SIZES = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    """A BERT-type folder with vocab.txt."""
    folder = tmp_path / "bert"
    transformers.BertModel(transformers.BertConfig(**SIZES, vocab_size=len(WORDS))).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    return folder


@pytest.fixture
def gpt2(tmp_path: Path) -> Path:
    """A GPT-2-type folder with vocab.json and merges.txt."""
    folder = tmp_path / "gpt2"
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = [*letters, *("".join(pair) for pair in MERGES), "<|endoftext|>"]
    config = transformers.GPT2Config(n_embd=8, n_layer=1, n_head=2, n_positions=64, vocab_size=len(pieces))
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)
    (folder / "vocab.json").write_text(json.dumps({piece: number for number, piece in enumerate(pieces)}))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in MERGES))
    return folder


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of huggingface_hub, empty, and no network."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    return tmp_path / "hub"


def put(cache: Path, name: str, folder: Path) -> None:
    """The folder as the hub's model of this name."""
    there = cache / f"models--{name.replace('/', '--')}"
    shutil.copytree(folder, there / "snapshots" / ("0" * 40))
    (there / "refs").mkdir()
    (there / "refs" / "main").write_text("0" * 40)


def test_a_hub_id_that_was_fetched_needs_no_network(
    bert: Path, hub_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(hub_cache, "org/tiny-bert", bert)
    right = models.load(bert)
    found = models.load("org/tiny-bert")
    assert isinstance(found, models.TextEncoder)
    assert isinstance(right, models.TextEncoder)
    assert torch.equal(found.encode([TEXT]), right.encode([TEXT]))
    assert isinstance(models.build("org/tiny-bert"), models.Bert)
    assert main(["see", TEXT, "--model", "org/tiny-bert", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["keys"] == TOKENS


@pytest.mark.usefixtures("hub_cache")
def test_without_a_network_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    message = (
        r"org/tiny is no folder here, and the hub did not give it \(LocalEntryNotFoundError: .* …\); check the name "
        "and the network, or name a folder that `hf download org/tiny --local-dir FOLDER` made elsewhere"
    )
    with pytest.raises(OSError, match=message):
        models.load("org/tiny")
    assert main(["see", TEXT, "--model", "org/tiny"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("regard see: org/tiny is no folder here, and the hub did not give it")
    assert said.count("\n") == 1


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], list[Any]]:
    """`asked(folder)`: the hub gives this folder for every name; what it is asked for."""

    def give(folder: Path) -> list[Any]:
        calls: list[Any] = []

        def snapshot_download(name: str, *, allow_patterns: list[str]) -> str:
            calls.append((name, allow_patterns))
            return str(folder)

        monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
        return calls

    return give


def test_the_config_is_fetched_first(bert: Path, asked: Callable[[Path], list[Any]]) -> None:
    calls = asked(bert)
    models.load("org/tiny")
    assert calls == [
        ("org/tiny", ["config.json"]),
        ("org/tiny", ["*.json", "model*.safetensors", "vocab.txt", "merges.txt"]),
    ]
    (bert / "config.json").write_text(json.dumps({"model_type": "t5"}))
    calls.clear()
    with pytest.raises(ValueError, match="holds a model of type 't5'; known are bert"):
        models.load("org/tiny")
    assert calls == [("org/tiny", ["config.json"])]


def test_a_folder_is_not_looked_for_on_the_hub(
    bert: Path, asked: Callable[[Path], list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = asked(bert)
    monkeypatch.chdir(bert.parent.parent)
    for name in (f"{bert.parent.name}/bert", bert, str(bert)):
        models.load(name)
    for name in ("./org/tiny", "~/org/tiny", "org/tiny/more", "tiny"):
        with pytest.raises(FileNotFoundError, match=r"neither a model that .* nor a folder nor a hub id \(org/name\)"):
            models.load(name)
    with pytest.raises(FileNotFoundError, match=r"no folder org.tiny; a model is a folder with config.json"):
        models.load(Path("org/tiny"))
    assert calls == []


def test_without_huggingface_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match=r"needs the package huggingface_hub: pip install 'regard\[models\]'"):
        models.load("org/tiny")


def same_tokens(folder: Path) -> Tokenizer:
    """What `load` makes of the vocabulary, compared with transformers' own reading."""
    found = models.load(folder).tokenizer
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    assert found.encode(TEXT).ids == theirs(TEXT).input_ids
    return found


def test_a_folder_with_vocab_txt(bert: Path) -> None:
    assert same_tokens(bert).encode(TEXT).tokens == TOKENS
    (bert / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False}))
    assert same_tokens(bert).encode(TEXT).tokens[1] == "[UNK]"


def test_a_folder_with_vocab_json_and_merges_txt(gpt2: Path) -> None:
    found = same_tokens(gpt2)
    assert found.encode(" cat the").tokens == ["Ġc", "at", "Ġ", "the"]
    assert found.decode(found.encode(TEXT).ids) == TEXT
    (gpt2 / "merges.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"has no tokenizer.json, vocab.txt, or vocab.json with merges.txt"):
        models.load(gpt2)


def test_the_class_that_a_folder_names_cuts_its_text(gpt2: Path) -> None:
    """A GLM with the vocabulary of a GPT-2: transformers goes by the type of the model, and makes none."""
    expected = models.load(gpt2).tokenizer.encode(TEXT).ids
    sizes: Any = SIZES | {"num_key_value_heads": 1, "head_dim": 4, "pad_token_id": 0, "eos_token_id": 1}
    config = transformers.GlmConfig(**sizes, vocab_size=len(json.loads((gpt2 / "vocab.json").read_text())))
    transformers.GlmForCausalLM(config).save_pretrained(gpt2)
    with pytest.raises(ValueError, match=r'name it in tokenizer_config.json: {"tokenizer_class": "GPT2Tokenizer"}'):
        models.load(gpt2)
    (gpt2 / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "AutoModel"}))  # of another kind
    with pytest.raises(ValueError, match=r"transformers makes no tokenizer of vocab.json and merges.txt in"):
        models.load(gpt2)
    (gpt2 / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "GPT2Tokenizer"}))
    assert models.load(gpt2).tokenizer.encode(TEXT).ids == expected


def test_a_vocabulary_without_transformers(gpt2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    message = "has vocab.json and merges.txt but no tokenizer.json, .* pip install transformers"
    with pytest.raises(ImportError, match=message):
        models.load(gpt2)


def test_a_vocabulary_that_is_none(gpt2: Path) -> None:
    (gpt2 / "vocab.json").write_text("[1, 2")
    with pytest.raises(ValueError, match=r"transformers makes no tokenizer of vocab.json and merges.txt in .*gpt2 "):
        models.load(gpt2)
