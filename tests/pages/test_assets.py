"""Assets: a page's modules as one; what cannot be bundled is refused."""

import pytest

from regard.pages.assets import Asset, bundle


def module(text: str) -> Asset:
    return Asset(text.encode(), "text/javascript")


def test_each_module_comes_once_after_those_it_imports() -> None:
    files = {
        "one.js": module('import { two as other } from "./two.js";\nexport default { other };\n'),
        "two.js": module("export const two = 2;\nfunction three() {}\nexport { three as four };\n"),
    }
    text = bundle(files, "one.js")
    assert text.index("const module_two =") < text.index("const module_one =")
    assert "const { two: other } = module_two;" in text
    assert "return { two: two, four: three };" in text
    assert text.endswith("export default module_one.default;\n")


def test_a_form_that_cannot_be_bundled_is_refused() -> None:
    files = {"widget.js": module('import whole from "./dom.js";\n')}
    with pytest.raises(ValueError, match=r"widget.js has a form that cannot be bundled: import whole"):
        bundle(files, "widget.js")


def test_modules_in_folders_import_each_other_by_relative_paths() -> None:
    files = {
        "main.js": module('import { one } from "./chapters/one.js";\nexport default { one };\n'),
        "chapters/one.js": module('import * as dom from "../shared/dom.js";\nexport const one = dom.make;\n'),
        "shared/dom.js": module("export const make = 1;\n"),
    }
    text = bundle(files, "main.js")
    assert "const dom = module_shared_dom;" in text
    assert "const { one: one } = module_chapters_one;" in text
