"""The course's notebooks: each runs at smoke scale, and is kept with the outputs of a whole run."""

import base64
import re

import matplotlib.pyplot as plt
import nbformat
import pytest

from tools.run_notebooks import NOTEBOOKS, code_cells, markdown, plain, run

SOLUTION = r"""<details>
<summary>Solution (\d)</summary>

(?s:.*)```python
(?s:.*)
```

```text
(?s:.*)
```

</details>"""


@pytest.fixture
def lesson(monkeypatch):
    """Small sizes, and figures that nobody waits for."""
    monkeypatch.setenv("EXTREMAL_LESSON", "smoke")
    monkeypatch.setattr(plt, "show", lambda: plt.close("all"))
    with plt.rc_context({"backend": "agg"}):
        yield
    plt.close("all")


def cells(path):
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


def test_there_are_three_lessons():
    assert [path.stem for path in NOTEBOOKS] == ["1-alignment", "2-robustness", "3-real-data"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_lesson_runs_at_smoke_scale(path, lesson):
    """In this process, so that every warning is an error; `run` below needs a kernel.

    Solutions run as well, after the cells before them.
    """
    names: dict[str, object] = {}
    code = code_cells(nbformat.read(path, as_version=4))
    assert len(code) == len(cells(path)) + 3
    for number, cell in enumerate(code):
        exec(compile(cell.source, f"{path.name}, cell {number}", "exec"), names)
    assert names["SMOKE"] is True


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_lesson_is_kept_with_the_outputs_of_one_run_from_the_top(path):
    code = cells(path)
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    assert not [output for output in outputs if output.get("name") == "stderr"]
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 3
    assert path.stat().st_size < 400_000


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_lesson_has_exercises_and_a_folded_solution_to_each(path):
    """Whoever reads the exercises sees no solution, neither below them nor in an output."""
    book = nbformat.read(path, as_version=4).cells
    *_, asked = (k for k, cell in enumerate(book) if "Exercises\n" in cell.source)
    exercises, heading, _ = book[asked].source.partition("\n## Solutions\n")
    assert heading
    for number in (1, 2, 3):
        assert f"\n{number}. **" in exercises
    solved = [re.fullmatch(SOLUTION, cell.source) for cell in book[asked + 1 :]]
    assert [found and found[1] for found in solved] == ["1", "2", "3"]


def test_run_executes_in_a_kernel_and_the_page_shows_what_it_printed(tmp_path):
    pixel = base64.b64encode(b"\x89PNG, and what a notebook does not look at").decode()
    source = f"print(6 * 7)\ndisplay({{'image/png': '{pixel}', 'text/plain': 'x'}}, raw=True)"
    solution = "<details>\n\n```python\nprint(7)\nprint(8)\n```\n\n```text\nold\n```\n\n</details>"
    made = [nbformat.v4.new_markdown_cell("# Title"), nbformat.v4.new_code_cell(source)]
    made.append(nbformat.v4.new_markdown_cell(solution))
    path = tmp_path / "small.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=made), path)
    book = plain(run(path))
    assert [dict(output.data) for output in book.cells[1].outputs[1:]] == [{"image/png": pixel}]
    assert [cell.cell_type for cell in book.cells] == ["markdown", "code", "markdown"]
    assert book.cells[2].source == solution.replace("old", "7\n8")
    text, pictures = markdown(book, "small")
    assert '<details markdown="1">\n\n```python\nprint(7)\n' in text
    assert text.startswith("# Title\n\n```python\nprint(6 * 7)\n")
    assert "```text\n42\n```" in text
    assert "](small-1.png)" in text
    assert pictures == {"small-1.png": base64.b64decode(pixel)}
