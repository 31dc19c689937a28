"""Every known data set from a small file in its raw format to sequences."""

from __future__ import annotations

import dataclasses
import gzip
import lzma
import os
from pathlib import Path

import pytest

from hcarec import Filters, Sequences, prepare
from hcarec.config import TIME_UNITS
from hcarec.data import sources
from raw_samples import SAMPLES, Event, Sample

UNFILTERED = dataclasses.asdict(Filters())


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HCAREC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "raw").mkdir()
    return tmp_path / "raw"


def events_of(data: Sequences) -> dict[str, list[tuple[str, float]]]:
    """Return (item, seconds) by user, in order."""
    assert data.times is not None
    steps = TIME_UNITS[data.time_unit or "s"]
    found: dict[str, list[tuple[str, float]]] = {}
    for user in range(data.n_users):
        span = slice(data.offsets[user], data.offsets[user + 1])
        pairs = zip(data.items[span], data.times[span], strict=True)
        found[data.user_ids.text(user)] = [(data.item_ids.text(int(item)), float(time) / steps) for item, time in pairs]
    return found


def expected(events: list[Event]) -> dict[str, list[tuple[str, float]]]:
    found: dict[str, list[tuple[str, float]]] = {}
    for user, item, time in events:
        found.setdefault(user, []).append((item, pytest.approx(time, abs=1e-6)))
    return found


def test_every_known_data_set_has_a_sample() -> None:
    sampled = {"amazon-*" if sample.name.startswith("amazon-") else sample.name for sample in SAMPLES.values()}
    assert sampled == set(sources.known()) - {"synthetic"}


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
def test_the_raw_format_is_read(sample: Sample, folder: Path) -> None:
    data = prepare(sample.name, raw=sample.write(folder), **UNFILTERED)
    assert events_of(data) == expected(sample.events)
    report = data.about["report"]
    assert report["quarantined"]["rows"] == sample.quarantined
    assert report["rows"] == len(sample.events) + sample.quarantined + sample.other_types + sum(sample.removed.values())
    assert data.about["source"].get("removed", {}) == sample.removed
    for item, title in sample.titles.items():
        assert data.title(data.item_ids.index(item)) == title


@pytest.mark.parametrize("sample", [sample for sample in SAMPLES.values() if sample.removed], ids=lambda sample: sample.name)
def test_every_raw_row_is_accounted_for(sample: Sample, folder: Path) -> None:
    source = prepare(sample.name, raw=sample.write(folder), **UNFILTERED).about["source"]
    assert source["raw_rows"] == len(sample.events) + sample.quarantined + sum(source["removed"].values())


@pytest.mark.parametrize("packer", [gzip, lzma], ids=["gz", "xz"])
@pytest.mark.parametrize("key", ["TAOBAO", "OUTBRAIN", "ONLINE_RETAIL", "YOOCHOOSE", "DIGINETICA"])
def test_packed_files_are_read_as_well(key: str, packer: object, folder: Path) -> None:
    sample = SAMPLES[key]
    plain = sample.write(folder)
    packed = plain.with_name(plain.name + (".gz" if packer is gzip else ".xz"))
    packed.write_bytes(packer.compress(plain.read_bytes()))  # type: ignore[attr-defined]
    plain.unlink()
    assert events_of(prepare(sample.name, raw=packed, **UNFILTERED)) == expected(sample.events)
    assert events_of(prepare(sample.name, raw=folder, **UNFILTERED)) == expected(sample.events)


def test_a_file_of_another_name_is_read(folder: Path) -> None:
    sample = SAMPLES["TAOBAO"]
    path = sample.write(folder).rename(folder / "mine.log")
    assert events_of(prepare("taobao", raw=path, **UNFILTERED)) == expected(sample.events)


def test_the_papers_filters_are_the_defaults_of_taobao(folder: Path) -> None:
    lengths = {1: 29, 2: 30, 3: 200, 4: 201}
    rows = [f"{user} {n % 50} 201504{1 + n % 28:02d}" for user, length in lengths.items() for n in range(length)]
    (folder / "user_bought_history.txt").write_text("\n".join(rows) + "\n")
    data = prepare("taobao", raw=folder)
    assert dict(zip(data.user_ids, data.lengths.tolist(), strict=True)) == {2: 30, 3: 200}


def test_the_papers_filters_are_the_defaults_of_outbrain(folder: Path) -> None:
    def views(user: str, documents: list[int]) -> list[str]:
        return [f"{user},{document},{n},1,US,1" for n, document in enumerate(documents)]

    rows = views("nine", list(range(9))) + views("ten", list(range(10))) + views("hundred", list(range(100))) + views("more", list(range(101)))
    rows += views("again", [*range(10), 3, 3]) + views("few", [1, 2, 3] * 5)
    (folder / "page_views_sample.csv").write_text("uuid,document_id,timestamp,platform,geo_location,traffic_source\n" + "\n".join(rows) + "\n")
    data = prepare("outbrain", raw=folder)
    assert dict(zip(data.user_ids, data.lengths.tolist(), strict=True)) == {"ten": 10, "hundred": 100, "again": 10}


@pytest.mark.skipif("HCAREC_DATA" not in os.environ, reason="HCAREC_DATA does not name the folder of real logs")
def test_the_real_fragment_of_taobao_is_read() -> None:
    data = prepare("taobao", raw=Path(os.environ["HCAREC_DATA"]) / "taobao_user_bought_history_fragment.txt.xz", **UNFILTERED)
    assert (data.n_users, data.n_items, data.n_events) == (82_745, 3_065, 100_000)
    assert data.about["report"]["quarantined"]["rows"] == 0
