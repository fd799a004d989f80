"""The playground: attention as a page of chapters in which things are dragged, with exact numbers."""

from regard.playground.document import document, export
from regard.playground.figures import figures
from regard.playground.serve import Playground, play, serve

__all__ = ["Playground", "document", "export", "figures", "play", "serve"]
