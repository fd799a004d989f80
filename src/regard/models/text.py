"""Models with their tokenizer: text in, vectors or text out; and a long sample text."""

import json
import textwrap
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from regard.checks import whole
from regard.inspection.capture.text import TextInput, check_length, encoded, labels, name_of, padded
from regard.models.families.bert import POOLINGS, Bert
from regard.models.optional import need
from regard.nn import LanguageModel, stream
from regard.spec.masks import Lengths

if TYPE_CHECKING:
    from tokenizers import Tokenizer


VOCABULARIES = (("vocab.txt",), ("vocab.json", "merges.txt"))  # of which transformers makes a tokenizer


def tokenizer(folder: Path) -> "Tokenizer":
    """The tokenizer of a model's folder; it cuts and pads nothing."""
    need("tokenizers")
    from tokenizers import Tokenizer

    file = folder / "tokenizer.json"
    made = Tokenizer.from_file(str(file)) if file.is_file() else _from_vocabulary(folder)
    made.no_padding()
    made.no_truncation()
    return made


def _from_vocabulary(folder: Path) -> "Tokenizer":
    """What transformers makes of a vocabulary: it knows how each type of model cuts text, and its special tokens."""
    found = next((files for files in VOCABULARIES if all((folder / name).is_file() for name in files)), None)
    if found is None:
        raise FileNotFoundError(
            f"{folder} has no tokenizer.json, vocab.txt, or vocab.json with merges.txt; models.build(folder) takes the "
            "model without a tokenizer"
        )
    try:
        import transformers
    except ImportError as error:
        raise ImportError(
            f"{folder} has {' and '.join(found)} but no tokenizer.json, and transformers makes one of them: "
            "pip install transformers"
        ) from error
    options = {"local_files_only": True, "trust_remote_code": False}
    try:
        # AutoTokenizer goes by the type of some models, whatever class the folder names
        named = getattr(transformers, _class_named(folder), None)
        is_tokenizer = isinstance(named, type) and issubclass(named, transformers.PreTrainedTokenizerBase)
        made: Any = named if is_tokenizer else transformers.AutoTokenizer
        backend: Tokenizer = made.from_pretrained(folder, **options).backend_tokenizer
    except Exception as error:
        reason = textwrap.shorten(f"{type(error).__name__}: {error}", 200, placeholder=" …")
        raise ValueError(
            f"transformers makes no tokenizer of {' and '.join(found)} in {folder} ({reason}); if another model's cuts "
            'text in the same way, name it in tokenizer_config.json: {"tokenizer_class": "GPT2Tokenizer"}'
        ) from error
    return backend


def _class_named(folder: Path) -> str:
    """The tokenizer's class that the folder names, or ""."""
    file = folder / "tokenizer_config.json"
    settings = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return str(settings.get("tokenizer_class") or "") if isinstance(settings, dict) else ""


def _listed(texts: Sequence[str]) -> list[str]:
    if isinstance(texts, str):
        raise TypeError("texts must be a list of them, got one; write [text]")
    listed = list(texts)
    for text in listed:
        if not isinstance(text, str):
            raise TypeError(f"every text must be a str, got {type(text).__name__}")
    return listed


class TextEncoder(nn.Module):
    """A BERT-type model and its tokenizer: texts become vectors of length 1 whose products say how close they are."""

    def __init__(
        self, model: Bert, tokenizer: "Tokenizer", longest: int, *, pad: int = 0, pooling: str = "mean"
    ) -> None:
        super().__init__()
        if pooling not in POOLINGS:
            raise ValueError(f"pooling must be one of {', '.join(POOLINGS)}, got {pooling!r}")
        self.name = ""  # what it was loaded as
        tokenizer.enable_truncation(longest)
        self.model, self.tokenizer, self.longest, self.pad, self.pooling = model, tokenizer, longest, pad, pooling
        self.reach: int | None = len(model.places.weight)  # tokens for which it has positions

    def tokens(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Ids (text, length), padded on the right, and lengths; texts that are too long are cut."""
        rows = [encoding.ids for encoding in self.tokenizer.encode_batch_fast(_listed(texts))]
        lengths = torch.tensor([len(row) for row in rows], dtype=torch.long, device="cpu")
        longest = max(map(len, rows), default=0)
        padded = [row + [self.pad] * (longest - len(row)) for row in rows]
        return torch.tensor(padded, dtype=torch.long, device="cpu").view(len(rows), longest), lengths

    def text_input(self, texts: Sequence[str], seconds: Sequence[str] | None = None) -> TextInput:
        """What `capture` calls the model with to read texts, or pairs of them; a text that is too long is refused."""
        rows = encoded(self.tokenizer, texts, seconds)
        check_length(self, rows, self.reach)
        ids, seen, types = padded(rows, self.pad, self.model.tokens.weight.device)
        return TextInput((ids, seen.sum(-1)), {} if seconds is None else {"types": types}, labels(rows))

    def forward(self, tokens: Tensor, lengths: Tensor, types: Tensor | None = None) -> Tensor:
        """Vectors (text, d_model) of ids and lengths; `types` says which of two texts a token belongs to."""
        if lengths.shape != tokens.shape[:1]:
            raise ValueError(f"lengths must be one for each of the {len(tokens)} texts, got {tuple(lengths.shape)}")
        return POOLINGS[self.pooling](self.model(tokens, types=types, mask=Lengths(lengths)), lengths)

    @torch.no_grad()
    def encode(self, texts: Sequence[str], batch: int = 32) -> Tensor:
        """Vectors (text, d_model), in batches of texts of like length."""
        texts = _listed(texts)
        whole("batch", batch, 1)
        device = self.model.tokens.weight.device
        order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
        out = torch.empty(
            len(texts), self.model.tokens.weight.shape[1], dtype=self.model.tokens.weight.dtype, device="cpu"
        )
        for first in range(0, len(order), batch):
            rows = order[first : first + batch]
            tokens, lengths = self.tokens([texts[row] for row in rows])
            out[rows] = self(tokens.to(device), lengths).cpu()
        return out


class TextGenerator(nn.Module):
    """A language model and its tokenizer: a text goes on."""

    def __init__(
        self,
        model: LanguageModel,
        tokenizer: "Tokenizer",
        stop: frozenset[int] = frozenset(),
        *,
        reach: int | None = None,
    ) -> None:
        super().__init__()
        self.model, self.tokenizer, self.stop = model, tokenizer, stop
        self.name = ""  # what it was loaded as
        self.reach = reach  # tokens for which it was made, if that is known

    def tokens(self, text: str) -> Tensor:
        """Ids (1, length)."""
        return torch.tensor([self.tokenizer.encode(text).ids], dtype=torch.long, device="cpu")

    def text_input(self, texts: Sequence[str], seconds: Sequence[str] | None = None) -> TextInput:
        """What `capture` calls the model with to read texts; shorter ones are padded on the right, which none sees."""
        if seconds is not None:
            raise ValueError(f"{name_of(self)} is a language model, which reads one text, not pairs; join them")
        rows = encoded(self.tokenizer, texts)
        check_length(self, rows, self.reach)
        ids, seen, _ = padded(rows, 0, self.model.head.weight.device)
        return TextInput((ids,), {} if bool(seen.all()) else {"mask": Lengths(seen.sum(-1))}, labels(rows))

    def text(self, ids: Sequence[int] | Tensor) -> str:
        """The text of ids; special tokens are left out."""
        listed = ids.flatten().tolist() if isinstance(ids, Tensor) else list(ids)
        return str(self.tokenizer.decode(listed))

    def forward(self, tokens: Tensor, **options: Any) -> Tensor:
        """Logits, as the language model gives them."""
        logits: Tensor = self.model(tokens, **options)
        return logits

    def stream(self, text: str, count: int, **options: Any) -> Iterator[str]:
        """The text that follows, piece by piece, until the model ends it; the options are those of `nn.stream`."""
        tokens = self.tokens(text)
        if tokens.shape[1] == 0:
            raise ValueError("there must be a text to go on from, got an empty one")
        device = self.model.head.weight.device
        ids: list[int] = []
        given = ""
        for token in stream(self.model, tokens.to(device), count, **({"stop": self.stop} | options)):
            ids.append(int(token[0]))
            so_far = self.text(ids)
            if len(so_far) > len(given) and not so_far.endswith("�"):  # which stands for half a character
                yield so_far[len(given) :]
                given = so_far
        if len(so_far := self.text(ids)) > len(given):
            yield so_far[len(given) :]

    def generate(self, text: str, count: int, **options: Any) -> str:
        """The text that follows, all at once."""
        return "".join(self.stream(text, count, **options))


def sample() -> str:
    """The Constitution of the United States with its amendments: 7,670 words, 9,944 tokens of SmolLM2."""
    return (resources.files("regard.models") / "texts" / "constitution.txt").read_text(encoding="utf-8")
