"""Packages that only the models need; they are looked for when they are used."""

import importlib


def need(*packages: str) -> None:
    """Refuse to go on without these packages."""
    for package in packages:
        try:
            importlib.import_module(package)
        except ImportError as error:
            raise ImportError(f"this model needs the package {package}: pip install 'regard[models]'") from error
