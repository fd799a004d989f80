"""Pieces: the tokens of a text as a reader knows them."""

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from regard.models.text import token_labels


def bytewise() -> Tokenizer:
    """Every byte is a token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = {letter: number for number, letter in enumerate(alphabet)} | {"Ġc": 256, "Ã©": 257}
    made = Tokenizer(models.BPE(vocab=words, merges=[("Ġ", "c"), ("Ã", "©")]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<|end|>"])
    return made


def test_bytes_that_make_a_character_are_it() -> None:
    made = bytewise()
    found = made.encode("é c\n€<|end|>")
    assert token_labels(made, found.ids) == ["é", "Ġc", "\n", "â", "Ĥ", "¬", "<|end|>"]


def test_other_vocabularies_are_taken_as_they_are() -> None:
    made = Tokenizer(models.WordPiece({"[UNK]": 0, "sleep": 1, "##ing": 2}, unk_token="[UNK]"))
    made.decoder = decoders.WordPiece()
    assert token_labels(made, made.encode("sleeping").ids) == ["sleep", "##ing"]
