"""Every argument of an exported function, class or method of the core is listed where it is."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import re
from collections.abc import Callable, Iterator

import pytest

PARTS = (
    "attack",
    "certify",
    "data",
    "evaluate",
    "measure",
    "models",
    "sklearn",
    "theory",
    "train",
)

# Up to this number of arguments a sentence may name them; more need an "Arguments:" block.
MOST_ARGUMENTS_IN_PROSE = 2

# A list entry starts with one or more names: "- `a`, `b`: ...".
ENTRY = re.compile(r"^\s*- ((?:\*{0,2}`\*{0,2}\w+`(?:, | and )?)+)[^:\n]*:", re.M)


# What the list of arguments stands under.
HEADING = "Arguments:\n"


def words(text: str) -> list[str]:
    """The names in a text."""
    return re.findall(r"\w+", text)


def text_of(obj: object) -> str:
    """An object's docstring, and that of a class's own constructor."""
    parts = [inspect.getdoc(obj) or ""]
    if inspect.isclass(obj) and "__init__" in vars(obj) and not dataclasses.is_dataclass(obj):
        parts.append(inspect.getdoc(obj.__init__) or "")
    return "\n".join(parts)


def commented_fields(obj: object) -> set[str]:
    """The fields of a class and its bases that have a comment on their line."""
    if not inspect.isclass(obj):
        return set()
    ours = [base for base in obj.__mro__ if base.__module__ in (obj.__module__, __name__)]
    pattern = re.compile(r"^    (?:    )?(\w+):[^#\n]*#\s*\S.*$", re.M)
    return {name for base in ours for name in pattern.findall(inspect.getsource(base))}


def arguments_of(obj: Callable[..., object]) -> list[str]:
    """The names a caller may pass."""
    names = list(inspect.signature(obj).parameters)
    return [name for name in names if name not in ("self", "cls", "args", "_")]


def listed(obj: Callable[..., object]) -> set[str]:
    """The names with an entry in an object's "Arguments:" block, or in one it points to.

    "Arguments as in `Initialisation.draw`." points to an exported object of the same part.
    """
    text = text_of(obj)
    found = {name for entry in ENTRY.findall(text.partition(HEADING)[2]) for name in words(entry)}
    pointer = re.search(r"Arguments as in `([\w.]+)`", " ".join(text.split()))
    if pointer:
        part = importlib.import_module(".".join(obj.__module__.split(".")[:2]))
        found |= listed(functools.reduce(getattr, pointer[1].split("."), part))
    return found


def unlisted(obj: Callable[..., object]) -> list[str]:
    """The arguments of one function or class that a reader of its docstring would miss.

    A docstring with an "Arguments:" block must have an entry for each in it. One without a
    block must name each in backticks, and may do so for at most two. A comment at a
    dataclass's field stands for an entry.
    """
    text = text_of(obj)
    entries = listed(obj) | commented_fields(obj)
    missing = [name for name in arguments_of(obj) if name not in entries]
    if HEADING in text or len(missing) > MOST_ARGUMENTS_IN_PROSE:
        return missing
    return [name for name in missing if f"`{name}`" not in text]


def public_methods(obj: object) -> Iterator[tuple[str, Callable[..., object]]]:
    """The methods that a class of this package defines itself, without properties."""
    if not inspect.isclass(obj):
        return
    for name, member in vars(obj).items():
        is_method = inspect.isfunction(member) or isinstance(member, classmethod | staticmethod)
        if is_method and not name.startswith("_"):
            yield name, getattr(obj, name)


def in_module(obj: object, module: str) -> bool:
    """Whether an object is public and defined in just this module, for parts without `__all__`."""
    return getattr(obj, "__module__", "") == module and not obj.__name__.startswith("_")


def exported(part: str) -> Iterator[tuple[str, Callable[..., object]]]:
    """The exported functions and classes of a part with their public methods, by name."""
    module = importlib.import_module(f"extremal.{part}")
    own = [name for name, obj in vars(module).items() if in_module(obj, module.__name__)]
    for name in getattr(module, "__all__", own):
        obj = getattr(module, name)
        ours = getattr(obj, "__module__", "").startswith("extremal.")
        if not ours or not callable(obj) or (inspect.isclass(obj) and issubclass(obj, Exception)):
            continue
        yield f"{part}.{name}", obj
        for method, function in public_methods(obj):
            yield f"{part}.{name}.{method}", function


@pytest.mark.parametrize("part", PARTS)
def test_every_argument_is_listed(part: str) -> None:
    missing = {name: unlisted(obj) for name, obj in exported(part)}
    assert {name: arguments for name, arguments in missing.items() if arguments} == {}


def planted_short_list(first: int, second: int) -> None:
    """Heads a list that is not whole; `second` is named in a sentence only.

    Arguments:

    - `first`: a number.
    """


def planted_no_mention(first: int, second: int) -> None:
    """Explains `first` and leaves out the other."""


def planted_no_list(first: int, second: int, third: int) -> None:
    """Explains `first`, `second` and `third` in a sentence."""


@dataclasses.dataclass(frozen=True)
class PlantedFields:
    """Has a field that is named in a sentence only, beside `other` ones."""

    first: int  # a number
    second: int  # another number
    third: int = 0

    def method(self, value: int) -> int:
        """Leaves out its argument."""
        return value


@pytest.mark.parametrize(
    ("planted", "missing"),
    [
        (planted_short_list, ["second"]),
        (planted_no_mention, ["second"]),
        (planted_no_list, ["first", "second", "third"]),
        (PlantedFields, ["third"]),
        (PlantedFields.method, ["value"]),
    ],
)
def test_a_planted_gap_is_found(planted: Callable[..., object], missing: list[str]) -> None:
    assert unlisted(planted) == missing


def whole_list(first: int, second: int, *, third: int) -> None:
    """Lists all of its arguments.

    Arguments:

    - `first`, `second`: numbers, the first of which
      is explained on two lines.
    - `third`: a number.
    """


def two_in_prose(first: int, second: int) -> None:
    """Explains `first` and `second` in a sentence."""


@pytest.mark.parametrize("whole", [whole_list, two_in_prose])
def test_a_whole_docstring_passes(whole: Callable[..., object]) -> None:
    assert unlisted(whole) == []


def test_public_methods_and_the_estimator_are_looked_at() -> None:
    assert [name for name, _ in public_methods(PlantedFields)] == ["method"]
    assert "sklearn.PReLUClassifier.fit" in dict(exported("sklearn"))
