"""docs/run-on-a-cluster.md: its lines for a laptop and for TLS run, and the others parse."""

import ast
import re
import shlex
import shutil
import socket
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest
from dask.utils import parse_timedelta
from distributed.cli import dask_scheduler, dask_worker

from tests.helpers_fork import ForkServer, run_script
from tests.project import helpers_console
from tools.doc_tables import ROOT

PAGE = (ROOT / "docs/run-on-a-cluster.md").read_text()
COMMAND = f"{helpers_console.__name__}:call"
SCRIPT = f"{run_script.__module__}:run_script"
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S))
# What the calls on the page take, as read in the source of dask-jobqueue of October 2025 and of
# dask-kubernetes of July 2025, which are not installed where the tests run.
KEYWORDS = {
    "SLURMCluster": {
        *("queue", "account", "walltime", "cores", "processes", "memory", "worker_extra_args"),
        *("protocol", "security", "scheduler_options", "interface", "job_script_prologue"),
    },
    "cluster.adapt": {"minimum", "maximum", "minimum_jobs", "maximum_jobs"},
    "make_cluster_spec": {"image", "n_workers", "resources", "env", "worker_command"},
    "KubeCluster": {"name", "namespace", "custom_cluster_spec", "shutdown_on_close"},
    "ex.experiments.reproduce": {"cluster", "notice", "progress"},
}


def blocks(section: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", SECTIONS[section], re.M | re.S)


@contextmanager
def started(lines: list[str], forks: ForkServer, place: Path, **environment: str):
    """Lines that end in & run while the rest does, and are yielded; the others have run."""
    running = []
    try:
        for line in lines:
            words = shlex.split(line.removesuffix("&"))
            if words[0] == "openssl":
                subprocess.run(words, cwd=place, check=True, capture_output=True)
                continue
            target, more = COMMAND, words
            if words[0] == "python":
                target, more = SCRIPT, words[1:]
            process = forks.start(target, *more, cwd=place, environment=environment)
            running.append(process)
            if not line.endswith("&"):
                _, errors = process.communicate()
                assert process.returncode == 0, (line, errors)
        yield running
    finally:
        for process in reversed(running):
            process.kill()


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def lines_of(section: str) -> list[str]:
    """The section's commands, with a free port, one worker, and no dashboard."""
    port, (block,) = free_port(), blocks(section, "")
    block = block.replace("8786", port).replace("alpha", "127.0.0.1")
    block = block.replace("--nworkers -1", "--nworkers 1 --no-dashboard --host 127.0.0.1")
    return block.replace("dask scheduler", "dask scheduler --no-dashboard").splitlines()


def test_the_lines_for_a_laptop_run_and_the_example_takes_their_address(forks, tmp_path):
    lines = lines_of("A laptop, to try it")
    address = lines[-1].split()[-1]
    example = f"python {ROOT}/examples/sweep_on_dask.py --cluster {address} --steps 5"
    with started([*lines, example], forks, tmp_path):
        assert (tmp_path / "runs/min-vidal-2024/figure-2/smoke/report.html").is_file()
        assert (tmp_path / "runs/sweeps/width/table.csv").is_file()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes the key")
def test_the_lines_for_tls_run_with_the_settings_beside_them(forks, tmp_path):
    (tmp_path / "dask").mkdir()
    (settings,) = blocks("TLS", "yaml")
    (tmp_path / "dask/tls.yaml").write_text(settings.replace("/home/me", str(tmp_path)))
    lines = [line.replace("rsa:4096", "rsa:2048") for line in lines_of("TLS")]
    lines[1] = lines[1].replace("--protocol", "--host 127.0.0.1 --protocol")
    with started(lines, forks, tmp_path, DASK_CONFIG=str(tmp_path / "dask")) as running:
        assert (tmp_path / "runs/min-vidal-2024/figure-2/smoke/report.html").is_file()
    log = running[0].written()[1]
    assert "tls://127.0.0.1" in log
    assert "tcp://" not in log


@pytest.mark.parametrize("section", ["Slurm", "Kubernetes"])
def test_calls_have_arguments_that_exist(section):
    (block,) = blocks(section, "py")
    nodes = [*ast.walk(ast.parse(block))]
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    kept = {
        ast.unparse(node.targets[0]): set(ast.literal_eval(node.value))
        for node in nodes
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict)
    }
    for call in calls:
        given = {keyword.arg for keyword in call.keywords if keyword.arg is not None}
        for keyword in call.keywords:
            given |= kept[ast.unparse(keyword.value)] if keyword.arg is None else set()
        assert given <= KEYWORDS[ast.unparse(call.func)], ast.unparse(call)
    assert {ast.unparse(call.func) for call in calls} & {"SLURMCluster", "KubeCluster"}


def test_what_workers_of_jobs_and_pods_get_is_what_dask_takes():
    (slurm,), (kubernetes,) = blocks("Slurm", "py"), blocks("Kubernetes", "py")
    nodes = [node for text in (slurm, kubernetes) for node in ast.walk(ast.parse(text))]
    lists = [ast.literal_eval(node) for node in nodes if isinstance(node, ast.List)]
    (jobs,) = (each for each in lists if each[0] == "--lifetime")
    (pods,) = (each for each in lists if "worker" in each)
    (scheduler,) = (each for each in lists if "scheduler" in each)
    params = dask_worker.main.make_context("worker", ["tcp://alpha:8786", *jobs]).params
    assert parse_timedelta(params["lifetime"]) < 8 * 3600 - parse_timedelta("5m")
    assert pods[:2] == ["dask", "worker"]
    assert dask_worker.main.make_context("worker", pods[2:]).params["nthreads"] == 1
    assert scheduler[:2] == ["dask", "scheduler"]
    assert dask_scheduler.main.make_context("scheduler", scheduler[2:]).params["host"] == "0.0.0.0"


def test_the_page_is_short_and_says_what_was_not_tried():
    assert len(PAGE.splitlines()) <= 110
    assert len(re.findall(r"^\| (?!\|)", SECTIONS["What can break"], re.M)) == 6
    assert re.search(r"SSH, Slurm and Kubernetes could\s+not be tried", PAGE)
