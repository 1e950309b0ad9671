"""What `make docs` adds to mkdocs: files outside docs/, the lessons, and the list of commands.

Pages link to files of the repo as they lie in it, `../results/demo/quick.png`; the site holds each
of those under `repo/`, and Markdown files among them as pages. `<!-- commands -->` in a page
becomes the reference of the command line, from the command line itself.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from mkdocs.structure.files import File, Files

from extremal.cli.main import COMMAND_LINES, imported_command
from tools.run_notebooks import NOTEBOOKS, markdown

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
ALWAYS = ("CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md")
_LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)\s]*)?\))")


def on_files(files: Files, config: Any) -> Files:
    """Add the lessons, and every file of the repo that a page leads to."""
    for path in NOTEBOOKS:
        text, pictures = markdown(nbformat.read(path, as_version=4), path.stem)
        files.append(File.generated(config, f"lessons/{path.stem}.md", content=text))
        for name, content in pictures.items():
            files.append(File.generated(config, f"lessons/{name}", content=content))
    waiting = [*sorted(DOCS.rglob("*.md")), *(ROOT / name for name in ALWAYS)]
    while waiting:
        path = waiting.pop()
        uri = _uri(path)
        if files.get_file_from_path(uri) is None:
            files.append(File.generated(config, uri, abs_src_path=str(path)))
        if path.suffix == ".md":
            known = files.src_uris
            waiting += [other for other in _targets(path) if _uri(other) not in known]
    return files


def on_page_markdown(text: str, page: Any, **_: Any) -> str:
    """Lead links to where the site has their targets, and list the commands where asked."""
    here = page.file.src_uri

    def led(found: re.Match[str]) -> str:
        target = _resolved(_origin(here), found[2])
        if target is None:
            return found[0]
        return f"{found[1]}{os.path.relpath(_uri(target), os.path.dirname(here))}{found[3]}"

    text = _LINK.sub(led, text).replace(r"\<", "&lt;")  # an escape that mkdocs does not know
    return text.replace("<!-- commands -->", commands())


def commands() -> str:
    """Every command with its arguments and options, in Markdown."""
    described = (_described(imported_command(name), f"extremal {name}") for name in COMMAND_LINES)
    return "\n".join(line for lines in described for line in lines)


def _described(command: Any, name: str) -> Iterator[str]:
    if hasattr(command, "commands"):
        for key, inner in command.commands.items():
            yield from _described(inner, f"{name} {key}")
        return
    yield f"## `{name}`\n"
    told, _, example = (command.help or "").partition("Example:")
    yield f"{' '.join(told.split())}\n"
    if example:
        yield f"```console\n$ {example.strip()}\n```\n"
    rows = [_option(each) for each in command.params if not each.hidden]
    if rows:
        yield "| option | meaning | default |\n|---|---|---|"
        yield from (f"| `{names}` | {meaning} | {default} |" for names, meaning, default in rows)
        yield ""


def _option(each: Any) -> tuple[str, str, str]:
    """What a parameter is called, what it means, and what it is unless said."""
    if each.param_type_name == "argument":
        return each.name.upper(), each.help or "", ""
    names = ", ".join([*each.opts, *each.secondary_opts])
    default = each.default
    shown = "" if default is None or default is False or callable(default) else f"`{default}`"
    return names, each.help or "", shown


def _origin(uri: str) -> Path:
    """Where a page's text lies in the repo."""
    folder, _, rest = uri.partition("/")
    places = {"repo": ROOT, "lessons": ROOT / "notebooks"}
    return places[folder] / rest if folder in places else DOCS / uri


def _uri(path: Path) -> str:
    """Where the site has a file of the repo."""
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    return f"repo/{path.relative_to(ROOT).as_posix()}"


def _targets(path: Path) -> Iterator[Path]:
    for _, link, _ in _LINK.findall(path.read_text()):
        target = _resolved(path, link)
        if target is not None:
            yield target


def _resolved(path: Path, link: str) -> Path | None:
    """The file that a link of a page leads to, if it is one of the repo."""
    target = (path.parent / link).resolve()
    return target if "://" not in link and target.is_file() else None
