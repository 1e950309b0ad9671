"""Docstrings as the site shows them: formulas as they stand, and comments of fields as their text.

Our docstrings are plain text with `code` in backticks. In Markdown <x, w> would be a tag, and w_j
or a * b emphasis; so all but code is escaped. A field of a dataclass has its shape in the comment
behind it, and a constant its meaning in the one above it, which griffe does not see.
"""

from __future__ import annotations

import ast
import re
from typing import Any

import griffe

_CODE = re.compile(r"(``.*?``|`[^`]*`)", re.S)
_COMMENT = re.compile(r"[^#]*#\s*(?!noqa|type:)(.+)")


def escaped(text: str) -> str:
    """Docstring text in Markdown: paragraphs, lists and code as they are, all else literal."""
    blocks = re.split(r"(\n\s*\n)", text)
    return "".join(block if block.startswith("    ") else _escaped(block) for block in blocks)


def _escaped(block: str) -> str:
    parts = _CODE.split(block)
    return "".join(
        part if index % 2 else re.sub(r"([<>*_\[\]|\\#^~])", _literal, part)
        for index, part in enumerate(parts)
    )


def _literal(found: re.Match[str]) -> str:
    return f"&#{ord(found[1])};"


def _comment(lines: list[str], first: int, last: int) -> str:
    """The comment behind a statement, or else the lines of one right above it; "" without any."""
    behind = _COMMENT.fullmatch(lines[last - 1])
    if behind is not None:
        return behind[1]
    above: list[str] = []
    while first - 2 >= 0 and lines[first - 2].lstrip().startswith("# "):
        above.insert(0, lines[first - 2].lstrip("# ").rstrip())
        first -= 1
    return " ".join(above)


class Docstrings(griffe.Extension):
    """Escape every docstring, make one of a field's comment, and tell functions from files.

    `attack.run` is a function and the file that holds it; whoever asks for it means the function.
    """

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        for part in pkg.modules.values():
            for name in map(str, part.exports or ()):
                found = part.members.get(name)
                if isinstance(found, griffe.Module) and name in found.members:
                    part.members[name] = griffe.Alias(name, found.members[name], parent=part)

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = escaped(obj.docstring.value)

    def on_attribute_instance(
        self, *, node: ast.AST | griffe.ObjectNode, attr: griffe.Attribute, **_: Any
    ) -> None:
        if (
            attr.docstring is None
            and attr.lineno is not None
            and isinstance(node, ast.Assign | ast.AnnAssign)
        ):
            lines = attr.lines_collection[attr.filepath]  # type: ignore[index]
            text = _comment(lines, attr.lineno, attr.endlineno or attr.lineno)
            if text:
                attr.docstring = griffe.Docstring(escaped(text), parent=attr)
