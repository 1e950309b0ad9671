"""The course's notebooks: run them anew, and read them as Markdown for the site.

    python tools/run_notebooks.py              # runs every notebook of notebooks/, keeps outputs
    python tools/run_notebooks.py 3-real-data  # runs the one of that name

A solution is a folded Markdown cell: words, a block of Python, and a block of the text that it
prints. It runs after the cells before it, as they do, though students run it only if they copy it.

`EXTREMAL_LESSON=smoke` in the environment makes every lesson small, as the tests run them.
"""

from __future__ import annotations

import base64
import itertools
import re
import sys
from pathlib import Path
from typing import Any

import nbformat

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
_KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
_KEPT = ("image/png", "text/plain")  # of an output's forms, the first that is there
_SOLUTION = re.compile(r"(?<=```python\n)(.*?)(\n```\n\n```text\n)(.*?)(?=\n```)", re.S)


def code_cells(book: Any) -> list[Any]:
    """The code cells, and for each solution a new one with its code, in their order."""
    return [cell for cell in _unfolded(book) if cell.cell_type == "code"]


def _unfolded(book: Any) -> list[Any]:
    """All cells, each solution followed by a code cell."""
    cells = []
    for cell in book.cells:
        cells.append(cell)
        found = _SOLUTION.search(cell.source) if cell.cell_type == "markdown" else None
        if found is not None:
            cells.append(nbformat.v4.new_code_cell(found[1]))
    return cells


def run(path: Path) -> Any:
    """A notebook with the outputs of a run from its top, in a kernel of this environment."""
    from nbclient import NotebookClient  # noqa: PLC0415 - the site only reads

    book = nbformat.read(path, as_version=4)
    kept, book.cells = book.cells, _unfolded(book)
    place = {"metadata": {"path": str(ROOT)}}
    NotebookClient(book, timeout=900, coalesce_streams=True, resources=place).execute()
    for solution, code in itertools.pairwise(book.cells):
        if solution.cell_type == "markdown" and not any(code is cell for cell in kept):
            told = "".join(output.text for output in code.outputs).rstrip()
            solution.source = _SOLUTION.sub(
                lambda found, told=told: found[1] + found[2] + told, solution.source
            )
    book.cells = kept
    return book


def plain(book: Any) -> Any:
    """A notebook without what differs from run to run: times, versions, forms that nobody reads."""
    book.metadata = {"kernelspec": _KERNEL}
    for cell in book.cells:
        cell.metadata = {}
        if cell.cell_type != "code":
            continue
        for output in cell.outputs:
            if "data" in output:
                kind = next(kind for kind in _KEPT if kind in output.data)
                output.data = {kind: output.data[kind]}
                output.metadata = {}
    return book


def markdown(book: Any, stem: str) -> tuple[str, dict[str, bytes]]:
    """A notebook as a page, and its pictures by their file names."""
    parts, pictures = [], {}
    for cell in book.cells:
        if cell.cell_type == "markdown":
            # Python-Markdown leaves what is in HTML as it is, unless told otherwise.
            parts.append(cell.source.replace("<details>", '<details markdown="1">'))
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for output in cell.outputs:
            data = output.get("data", {"text/plain": output.get("text", "")})
            if "image/png" in data:
                name = f"{stem}-{len(pictures) + 1}.png"
                pictures[name] = base64.b64decode(data["image/png"])
                parts.append(f"![What the cell above draws]({name})")
            else:
                parts.append(f"```text\n{data['text/plain'].rstrip()}\n```")
    return "\n\n".join(parts) + "\n", pictures


def main() -> None:
    known = {path.stem: path for path in NOTEBOOKS}
    asked = sys.argv[1:] or [*known]
    if not {*asked} <= known.keys():
        sys.exit(f"a notebook must be one of {', '.join(known)}, got {' '.join(asked)}")
    for path in map(known.__getitem__, asked):
        print(f"running {path.name}", file=sys.stderr)
        nbformat.write(plain(run(path)), path)


if __name__ == "__main__":
    main()
