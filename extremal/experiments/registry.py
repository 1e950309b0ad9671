"""The experiments and studies of the package by name, and records in files of the user's own.

The tables say where things are as "module:attribute", below ``papers``; a module is
imported when somebody asks for what it holds. The ids of studies are part of trials' keys: files
and functions may move and get other names, an id stays what it was at first.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import os
import re
import sys
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from extremal._check import require
from extremal.experiments.experiment import Experiment
from extremal.experiments.trial import Study

RECORDS = {
    "demo": "min_vidal_2024.figure_2_learned_classifier:demo",
    "li-2022/generalisation": "li_2022.smallest_width:generalisation",
    "li-2022/memorisation": "li_2022.robust_memorisation:memorisation",
    "li-2022/overfitting": "li_2022.robust_overfitting:overfitting",
    "li-2022/separation": "li_2022.separation_of_images:separation",
    "li-2022/separation-folders": "li_2022.separation_of_images:separation_folders",
    "li-2025-averaging/ablations": "li_2025_averaging.ablations:ablations",
    "li-2025-averaging/dynamics": "li_2025_averaging.figure_1_feature_averaging:dynamics",
    "li-2025-averaging/figure-1": "li_2025_averaging.figure_1_feature_averaging:figure_1",
    "li-2025-averaging/figure-2": "li_2025_averaging.figure_2_finer_labels:figure_2",
    "li-li-2025/features": "li_li_2025.table_2_image_features:features",
    "li-li-2025/figure-3": "li_li_2025.figure_3_patches:figure_3",
    "li-li-2025/real-dynamics": "li_li_2025.table_2_image_features:real_dynamics",
    "li-li-2025/table-2": "li_li_2025.table_2_image_features:table_2",
    "li-li-2025/transition": "li_li_2025.figure_3_patches:transition",
    "min-vidal-2024/fidelity-by-spread": (
        "min_vidal_2024.figure_2_learned_classifier:fidelity_by_spread"
    ),
    "min-vidal-2024/figure-1": "min_vidal_2024.figure_1_neurons_in_space:figure_1",
    "min-vidal-2024/figure-2": "min_vidal_2024.figure_2_learned_classifier:figure_2",
    "min-vidal-2024/figure-3": "min_vidal_2024.table_1_mnist:figure_3",
    "min-vidal-2024/figure-3-fashion-mnist": "min_vidal_2024.table_1_mnist:figure_3_fashion_mnist",
    "min-vidal-2024/figure-4": "min_vidal_2024.figure_4_frozen_features:figure_4",
    "min-vidal-2024/figure-4-cifar10": "min_vidal_2024.figure_4_frozen_features:figure_4_cifar10",
    "min-vidal-2024/figure-5": "min_vidal_2024.figure_2_learned_classifier:figure_5",
    "min-vidal-2024/figure-6": "min_vidal_2024.table_1_mnist:figure_6",
    "min-vidal-2024/figure-6-fashion-mnist": "min_vidal_2024.table_1_mnist:figure_6_fashion_mnist",
    "min-vidal-2024/figure-7": "min_vidal_2024.figure_7_vector_field:figure_7",
    "min-vidal-2024/flow-fidelity": "min_vidal_2024.figure_2_learned_classifier:flow_fidelity",
    "min-vidal-2024/lemma-1": "min_vidal_2024.lemma_1_alignment_error:lemma_1",
    "min-vidal-2024/table-1": "min_vidal_2024.table_1_mnist:table_1",
    "min-vidal-2024/table-1-fashion-mnist": "min_vidal_2024.table_1_mnist:table_1_fashion_mnist",
    "min-vidal-2024/theorem-1": "min_vidal_2024.theorem_1_bounds:theorem_1",
    "min-vidal-2024/theorem-2": "min_vidal_2024.theorem_2_drift:theorem_2",
    "min-vidal-2025/alignment": "min_vidal_2025.alignment_phases:alignment",
    "min-vidal-2025/figure-2": "min_vidal_2025.figure_2_network_comparison:figure_2",
    "min-vidal-2025/figure-7": "min_vidal_2025.figure_2_network_comparison:figure_7",
    "min-vidal-2025/theorem": "min_vidal_2025.subclass_theorem:theorem",
    "open-questions/activation": "open_questions.activations_and_losses:activation",
    "open-questions/algorithm": "open_questions.algorithms:algorithm",
    "open-questions/correlation": "open_questions.correlated_clusters:correlation",
    "open-questions/critical-radius": "open_questions.critical_radius:critical_radius",
    "open-questions/depth": "open_questions.depth_of_networks:depth",
    "open-questions/initialisation": "open_questions.p_and_initialisation:initialisation",
    "open-questions/p-sweep": "open_questions.p_and_initialisation:p_sweep",
    "open-questions/training-time": "open_questions.adversarial_training_cost:training_time",
}
"""The records of the package: the name of an experiment, and where it is."""

_STUDY_PLACES = {  # the end of an id, and where its function is
    "activation:activation": "open_questions.activations_and_losses:trial",
    "algorithm:algorithm": "open_questions.algorithms:trial",
    "alignment:alignment": "min_vidal_2024.lemma_1_alignment_error:trial",
    "averaging:ablation": "li_2025_averaging.averaging_trial:ablation_trial",
    "averaging:averaging": "li_2025_averaging.averaging_trial:figure_1_trial",
    "averaging:dynamics": "li_2025_averaging.averaging_trial:dynamics_trial",
    "clusters:clusters": "open_questions.correlated_clusters:trial",
    "comparison:comparison": "min_vidal_2025.network_comparison_trial:trial",
    "conjecture:conjecture": "min_vidal_2024.figure_2_trial:trial",
    "critical:critical": "open_questions.critical_radius:trial",
    "depth:depth": "open_questions.depth_trial:trial",
    "drift:drift": "min_vidal_2024.theorem_2_drift:trial",
    "features:features": "min_vidal_2024.figure_4_trial:trial",
    "finer:finer": "li_2025_averaging.finer_labels_trial:trial",
    "images:images": "min_vidal_2024.mnist_trial:trial",
    "learned:learned": "open_questions.flow_bias_trial:trial",
    "memorisation:memorisation": "li_2022.robust_memorisation:trial",
    "optimal:optimal": "min_vidal_2025.subclass_theorem_trial:trial",
    "overfitting:overfitting": "li_2022.robust_overfitting:trial",
    "patches:patches": "li_li_2025.patches_trial:figure_3_trial",
    "patches:window": "li_li_2025.patches_trial:transition_trial",
    "phases:phases": "min_vidal_2025.alignment_phases:trial",
    "plane:plane": "min_vidal_2024.figure_7_vector_field:trial",
    "real_features:real_features": "li_li_2025.image_features_trial:trial",
    "reference:reference": "min_vidal_2024.theorem_1_bounds:trial",
    "separation:separation": "li_2022.separation_of_images:trial",
    "smallest_width:smallest_width": "li_2022.smallest_width_trial:trial",
    "stages:stages": "min_vidal_2024.figure_1_neurons_in_space:trial",
    "training_time:training_time": "open_questions.adversarial_training_cost:trial",
}
STUDIES = {f"extremal.experiments.studies.{name}": place for name, place in _STUDY_PLACES.items()}
"""The studies of the package: the id, which is part of trials' keys, and where its function is."""
Source = tuple[str, str]
"""The path and the text of a user's module."""
# Packages name their records in this group of entry points, as "mine/radius" = "module:record".
_ENTRY_POINT_GROUP = "extremal.experiments"
# A name is a folder below the runs: parts of letters, digits, dots, dashes and underscores.
_RECORD_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)*", re.ASCII)
# A user's record is named by its file, or by its module and its name there.
_FILE_PLACE = re.compile(r"(.+\.py)(?::(\w+))?")
_MODULE_PLACE = re.compile(r"(\w+(?:\.\w+)*):(\w+)")


def names() -> list[str]:
    """The names of the package's experiments, in order; none of them is imported for it."""
    return sorted(RECORDS)


def get(name: str) -> Experiment:
    """The package's experiment of that name; ValueError with the nearest names where there is none.

    It imports nothing but the package's own modules, so that a name may come from a stranger.
    """
    if name not in RECORDS:
        raise ValueError(_unknown(name))
    found = _imported(f"extremal.experiments.papers.{RECORDS[name]}")
    require(isinstance(found, Experiment), RECORDS[name], "be an Experiment", found)
    record: Experiment = found
    return record


def installed() -> dict[str, str]:
    """Records of other installed packages: the name, and its "module:record"; none is imported.

    They are those of the entry point group "extremal.experiments". The package's own names stay its
    own.
    """
    points = entry_points(group=_ENTRY_POINT_GROUP)
    return {point.name: point.value for point in sorted(points) if point.name not in RECORDS}


def names_a_record(name: str) -> bool:
    """Whether a name is one that `find_record` looks up; it may find nothing there."""
    place = _FILE_PLACE.fullmatch(name) or _MODULE_PLACE.fullmatch(name)
    return name in RECORDS or place is not None or name in installed()


def find_record(name: str | os.PathLike[str]) -> Experiment:
    """The experiment of that name, or a record of the user's, whose module is imported.

    "my_record.py" has one record; of several one is named, "my_record.py:record". A module's is
    "my_package.records:record"; modules are looked for in the current folder, too. Those of
    installed packages are known by name (`installed`).
    """
    asked = os.fspath(name)
    if asked in RECORDS:
        return get(asked)
    file = _FILE_PLACE.fullmatch(asked)
    if file is not None:
        return _from_file(Path(file[1]), file[2] or "")
    known = installed()
    place = _MODULE_PLACE.fullmatch(known.get(asked, asked))
    if place is not None:
        record = _from_module(place[1], place[2])
        same = asked not in known or record.name == asked
        require(same, place[0], f"have the name of its entry point, {asked}", record.name)
        return record
    other = Path(asked)
    require(not (asked and other.exists()), "record", "be a Python file, my_record.py", other)
    raise ValueError(_unknown(asked))


def require_own_name(record: Experiment) -> None:
    """ValueError unless a record's name is one of a folder, and none of another in the package."""
    good = _RECORD_NAME.fullmatch(record.name) is not None
    require(
        good, "the record's name", "be words joined by slashes, as in mine/figure-1", record.name
    )
    own = record.name not in RECORDS or _is_of_the_package(record)
    require(own, "the record's name", "differ from the package's own", record.name)


def find_study(study: str, source: Source | None = None) -> Study:
    """The function of an id: that of the table, else (a user's own) "module:function" as it is.

    source: that of a user's module, where this machine need not have it (`study_source`).
    """
    if source is not None:
        return _from_source(study, source)
    inside = STUDIES.get(study)
    found: Study = _imported(study if inside is None else f"extremal.experiments.papers.{inside}")
    return found


def study_source(study: str) -> Source | None:
    """The source of a user's module, so that other machines need not have it, nor have an old one.

    None for the package's own, and where there is no file: then each has to find it itself.
    """
    try:
        module = importlib.import_module(study.partition(":")[0])
        file = inspect.getsourcefile(module)
        return None if study in STUDIES or file is None else (file, Path(file).read_text())
    except Exception:
        return None


@lru_cache(maxsize=8)
def _from_source(study: str, source: Source) -> Study:
    """The same function for all trials, so that what it keeps in memory is kept."""
    name, _, attribute = study.partition(":")
    # Under another name a script's main guard does not let it run.
    module = ModuleType(name.replace("__main__", "__mp_main__"))
    module.__file__, text = source
    sys.modules[module.__name__] = module
    exec(compile(text, module.__file__, "exec"), vars(module))
    found: Study = getattr(module, attribute)
    return found


def require_study(study: str) -> None:
    """ValueError unless an id names a function that can be imported."""
    try:
        found = find_study(study)
    except (Exception, SystemExit) as error:  # A user's module may do anything when imported.
        why = error if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"
        raise ValueError(f"function must be one that can be imported, got {why}") from error
    require(callable(found), "function", "name a function", f"{study}, which is {found!r}")


def _imported(place: str) -> Any:
    module, _, attribute = place.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _from_file(path: Path, attribute: str) -> Experiment:
    """The record in a Python file, which is imported by its name, as its processes do."""
    require(path.is_file(), "record", "be a file that is there", path)
    require(path.stem.isidentifier(), "record", "be a file with a module's name", path.name)
    sys.path.insert(0, str(path.absolute().parent))
    known = getattr(sys.modules.get(path.stem), "__file__", None)
    if known is not None and Path(known).resolve() == path.resolve():
        del sys.modules[path.stem]  # It may have been edited since.
    module = _users_module(path.stem, f"{path} must be a file")
    same = Path(module.__file__ or "").resolve() == path.resolve()
    require(same, "record", "be a file whose name no other module has", f"{path.stem}, a module")
    return _record_in(module, attribute, str(path))


def _from_module(name: str, attribute: str) -> Experiment:
    """A record of a module that is installed or, as for `python -m`, in the current folder."""
    here = os.getcwd()
    if here not in sys.path:  # Processes that compute trials get this path, too.
        sys.path.insert(0, here)
    return _record_in(_users_module(name, f"{name} must be a module"), attribute, name)


def _users_module(name: str, rule: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:  # A user's file may do anything when it is imported.
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise ValueError(f"{rule} that can be imported, got {why}") from error


def _record_in(module: ModuleType, attribute: str, place: str) -> Experiment:
    """The record of that name in a module, or its only one beside those of this package."""
    held = {key: value for key, value in vars(module).items() if isinstance(value, Experiment)}
    own = {key: value for key, value in held.items() if not _is_of_the_package(value)}
    some = " or ".join(f"{place}:{key}" for key in own)
    if attribute:
        require(attribute in held, "record", f"be {some or 'in another file'}", attribute)
        own = {attribute: held[attribute]}
    require(bool(own), place, "hold an Experiment of its own", "none")
    require(len(own) == 1, place, f"hold one Experiment; say which, {some}", len(own))
    (record,) = own.values()
    require_own_name(record)
    return record


def _is_of_the_package(record: Experiment) -> bool:
    return record.name in RECORDS and record == get(record.name)


def _unknown(name: str) -> str:
    known = names()
    wanted = name.lower().replace("_", "-")
    close = [other for other in known if wanted and wanted in other]
    close = close[:3] or difflib.get_close_matches(wanted, known, n=3, cutoff=0.5)
    hint = f": did you mean {' or '.join(close)}?" if close else ""
    return f"unknown experiment {name!r}{hint}; see `extremal list`"
