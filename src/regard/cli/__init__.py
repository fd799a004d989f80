"""The `regard` command: one file per subcommand, loaded only when it runs."""

from regard.cli.main import main

__all__ = ["main"]
