"""The playground: attention as a page of chapters in which things are dragged, with exact numbers."""

from regard.playground.document import document, export

__all__ = ["document", "export"]
