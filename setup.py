"""Put the stored summaries of results/ into the package, so that `extremal show` finds them."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

RESULTS = Path(__file__).parent / "results"


class WithResults(build_py):
    """`build_py`, and the summaries (not the pictures) as `extremal/results/`."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:  # a checkout has them already
            return
        for path in sorted(RESULTS.rglob("*.json")):
            target = Path(self.build_lib, "extremal", "results", path.relative_to(RESULTS))
            self.mkpath(str(target.parent))
            self.copy_file(str(path), str(target))


setup(cmdclass={"build_py": WithResults})
