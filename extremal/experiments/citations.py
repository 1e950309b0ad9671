"""BibTeX of the package, and of the papers that an experiment rests on."""

from __future__ import annotations

import re
from pathlib import Path

from extremal._version import __version__
from extremal.experiments.registry import get

# The papers of the experiments below a name; keys of references.bib.
_KEYS_BY_PREFIX = {
    "demo": ("min2024",),
    "li-2022": ("li2022",),
    "li-2025-averaging": ("li2025averaging",),
    "li-li-2025": ("li2025adversarial",),
    "min-vidal-2024": ("min2024",),
    "min-vidal-2025": ("min2025",),
    "open-questions": ("min2024", "min2025"),
}
# Attacks of these papers are part of every robust accuracy that is reported.
_ATTACK_KEYS = ("croce2020",)
_PACKAGE_ENTRY = f"""@software{{extremal,
  author = {{{{The extremal maintainers}}}},
  title = {{extremal: train, attack and certify shallow networks,
           and see why some of them are robust}},
  version = {{{__version__}}},
  license = {{MIT}}
}}"""


def citation(name: str | None = None) -> str:
    """BibTeX entries of the package and of what an experiment rests on.

    Arguments:

    - `name`: an experiment, as `extremal list` has it; None for the package and all five papers.
    """
    if name is None:
        keys = tuple(dict.fromkeys(key for each in _KEYS_BY_PREFIX.values() for key in each))
    else:
        prefix = get(name).name.split("/", maxsplit=1)[0]
        keys = (*_KEYS_BY_PREFIX[prefix], *_ATTACK_KEYS)
    text = (Path(__file__).parents[1] / "references.bib").read_text(encoding="utf-8")
    entries = dict(re.findall(r"^(?=@\w+\{(\w+),)(@.*?^\})", text, flags=re.M | re.S))
    return "\n\n".join([_PACKAGE_ENTRY, *(entries[key] for key in keys)]) + "\n"
