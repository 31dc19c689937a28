"""Build the documentation into a static site, strictly: broken links fail, and so does anything that would be loaded from elsewhere.

python docs/make_site.py [FOLDER]
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from urllib.parse import unquote

HERE = Path(__file__).parent
ROOT = HERE.parent
LOADED = re.compile(r"<(?:script|img|iframe|source|link)\b[^>]*?\b(?:src|href)=[\"'](?:https?:)?//[^\"']+[\"'][^>]*>", re.IGNORECASE)
LINKS = re.compile(r"\b(?:src|href)=\"([^\"]+)\"")
HARMLESS = re.compile(r"\brel=[\"']?(?:canonical|license)")


def build(target: Path) -> list[str]:
    """Build the site into a folder and return what is wrong with it."""
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        shutil.copy(ROOT / "zensical.toml", work)
        shutil.copytree(HERE, work / "docs", ignore=shutil.ignore_patterns("make_*.py", "__pycache__", "runs", "tests", "work"))
        environment = {**os.environ, "NO_COLOR": "1"}
        done = subprocess.run([sys.executable, "-m", "zensical", "build", "--strict"], cwd=work, env=environment, capture_output=True, text=True)
        if done.returncode:
            return [_plain(done.stdout + done.stderr.partition("Traceback")[0])]
        faults = left_out(work) + elsewhere(work / "site") + broken(work / "site")
        if not faults:
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(work / "site", target)
        return faults


def left_out(work: Path) -> list[str]:
    """Name the pages that the navigation does not lead to."""
    listed = str(tomllib.loads((work / "zensical.toml").read_text())["project"]["nav"])
    pages = [path.relative_to(work / "docs").as_posix() for path in sorted((work / "docs").rglob("*.md"))]
    return [f"docs/{page} is not in the navigation of zensical.toml" for page in pages if f"'{page}'" not in listed]


def elsewhere(site: Path) -> list[str]:
    """Name whatever a page of the site would load from another server."""
    pages = sorted(site.rglob("*.html"))
    return [f"{path.relative_to(site)} loads {found}" for path in pages for found in LOADED.findall(path.read_text()) if not HARMLESS.search(found)]


def broken(site: Path) -> list[str]:
    """Name the links to files that are not there; Zensical itself looks only at links to pages."""
    faults = []
    for page in sorted(site.rglob("*.html")):
        if page.name == "404.html":  # shown at any depth, with links from the root
            continue
        for target in set(LINKS.findall(page.read_text())):
            path = unquote(target.partition("#")[0].partition("?")[0])
            if path and ":" not in path and not path.startswith("//") and not _resolved(page.parent / path).is_file():
                faults.append(f"{page.relative_to(site)} links to {target}, which is not there")
    return faults


def _resolved(path: Path) -> Path:
    return path / "index.html" if path.is_dir() else path


def _plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text).strip()


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "site"
    wrong = build(folder)
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"the site is in {folder}: {Path(sys.executable).name} -m http.server --directory {folder} shows it")
