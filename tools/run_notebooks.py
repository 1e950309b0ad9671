"""The course's notebooks: run them anew, and read them as Markdown for the site.

    python tools/run_notebooks.py        # runs every notebook of notebooks/, keeps its outputs

`EXTREMAL_LESSON=smoke` in the environment makes every lesson small, as the tests run them.
"""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import Any

import nbformat

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
_KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
_KEPT = ("image/png", "text/plain")  # of an output's forms, the first that is there


def run(path: Path) -> Any:
    """A notebook with the outputs of a run from its top, in a kernel of this environment."""
    from nbclient import NotebookClient  # noqa: PLC0415 - the site only reads

    book = nbformat.read(path, as_version=4)
    place = {"metadata": {"path": str(ROOT)}}
    NotebookClient(book, timeout=900, coalesce_streams=True, resources=place).execute()
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
            parts.append(cell.source)
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
    for path in NOTEBOOKS:
        print(f"running {path.name}", file=sys.stderr)
        nbformat.write(plain(run(path)), path)


if __name__ == "__main__":
    main()
