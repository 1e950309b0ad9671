"""What a store has besides one file a trial: packs, which are results, and an index, a cache.

``<root>/packs/<first 2 of the keys>-<checksum>.pack`` hold records that have no file of their own
any more. ``<root>/index/<first 2 of the keys>.index`` hold copies of records whose files were read
and found whole, with the files' sizes and times: as long as these are the same, a file need not be
read again. Whoever deletes the index loses nothing but time.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

from extremal.experiments import bundle
from extremal.experiments.bundle import Entry, Stamp, stamp_of
from extremal.experiments.files import StoreError, read_whole, write_whole

_log = logging.getLogger(__name__)
_YOUNG = 2_000_000_000  # ns: a file this young may change again within one tick of its clock
_FEW, _SHARE = 8, 0.1  # an index is written again for more new records than this


class Index:
    """The packs and the index of one store, of which each part is loaded when first needed."""

    def __init__(self, root: Path, damaged: list[Path]) -> None:
        self.damaged = damaged  # gets the packs that are
        self.packs, self.folder = root / "packs", root / "index"
        self._copies: dict[str, dict[str, Entry]] = {}
        self._fresh: defaultdict[str, dict[str, Entry]] = defaultdict(dict)
        self._packed: dict[str, dict[str, Entry]] = {}
        self._listed: dict[str, list[Path]] = {}
        self._seen: Stamp | None = None

    def copy(self, key: str) -> Entry | None:
        """The copy of a record that has a file of its own, which may have changed since."""
        start = key[:2]
        if start not in self._copies:
            self._copies[start] = self._load_copies(start)
        return self._fresh[start].get(key) or self._copies[start].get(key)

    def note(self, entry: Entry) -> None:
        """Keep that these files were read and found whole, unless they are too young to tell."""
        newest = max(stamp[2] for stamp in (entry.stamp, entry.arrays) if stamp is not None)
        if time.time_ns() - newest > _YOUNG:
            self._fresh[entry.key[:2]][entry.key] = entry

    def save(self) -> None:
        """Write what was noted, where it is much beside what is written; errors do not matter."""
        for start, fresh in self._fresh.items():
            known = self._copies.get(start, {})
            if len(fresh) > max(_FEW, _SHARE * len(known)):
                known |= fresh
                with suppress(StoreError):
                    write_whole(self._file(start), bundle.dump(known.values()))
                fresh.clear()

    def packed(self, key: str) -> Entry | None:
        """A record that is in a pack."""
        self._look()
        start = key[:2]
        if start not in self._packed:
            found: dict[str, Entry] = {}
            for path in self._listed.get(start, []):
                found |= self.load_pack(path)
            self._packed[start] = found
        return self._packed[start].get(key)

    def pack_files(self) -> list[Path]:
        """All packs, in order."""
        self._look()
        return sorted(path for paths in self._listed.values() for path in paths)

    def add_pack(self, start: str, entries: dict[str, Entry]) -> Path:
        """Write a pack of records whose keys begin with `start`."""
        data = bundle.dump(entries.values())
        path = self.packs / f"{start}-{hashlib.sha256(data).hexdigest()[:32]}.pack"
        write_whole(path, data)
        return path

    def forget(self) -> None:
        """Load everything anew when it is next asked for."""
        self._copies.clear()
        self._fresh.clear()
        self._seen = None

    def _look(self) -> None:
        """List the packs, where their folder has changed."""
        now = stamp_of(self.packs)
        if now == self._seen and now is not None:
            return
        listed = defaultdict(list)
        if now is not None:
            for name in sorted(os.listdir(self.packs)):
                if name.endswith(".pack") and not name.startswith("."):
                    listed[name[:2]].append(self.packs / name)
        # A folder that changed a moment ago may change again within one tick of its clock.
        young = now is not None and time.time_ns() - now[2] <= _YOUNG
        self._seen = None if young else now
        if (
            listed != self._listed
        ):  # A pack never changes, so that the same names are the same ones.
            self._listed = dict(listed)
            self._packed.clear()

    def load_pack(self, path: Path) -> dict[str, Entry]:
        data = read_whole(path)
        if data is None:
            return {}  # merged into another one a moment ago, which the next look finds
        try:
            return bundle.load(data)
        except ValueError as error:
            return self._mend(path, data, str(error))

    def _mend(self, path: Path, data: bytes, why: str) -> dict[str, Entry]:
        """Set a damaged pack aside, and keep those of its records that are whole."""
        saved = bundle.salvage(data)
        lost = [key for key in bundle.named(data) if key not in saved]
        _log.warning(
            "damaged pack %s (%s): set aside; %d of its trials are whole and kept, not done are %s",
            path,
            why,
            len(saved),
            ", ".join(lost) or "those whose keys can't be read",
        )
        self.damaged.append(path)
        with suppress(StoreError, OSError):  # A store that is read-only keeps its damaged files.
            if saved:
                self.add_pack(path.name[:2], saved)
            os.replace(path, path.with_name(path.name + ".corrupt"))
        return saved

    def _load_copies(self, start: str) -> dict[str, Entry]:
        try:
            data = read_whole(self._file(start))
            return {} if data is None else bundle.load(data)
        except ValueError:  # unreadable or damaged: the files themselves are there
            return {}

    def _file(self, start: str) -> Path:
        return self.folder / f"{start}.index"
