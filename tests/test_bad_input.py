"""What people really feed a tool: each works where it is valid, and is one clear line and exit code 2 where not."""

from __future__ import annotations

import csv
import ctypes
import gzip
import os
import shutil
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from conftest import rows, write
from hcarec import Sequences, prepare

HEADER = "user_id,item_id,timestamp"
Command = Callable[..., tuple[int, str, str]]
Process = Callable[..., subprocess.CompletedProcess[str]]


def refused(command: Command, tmp_path: Path, *arguments: str | Path) -> str:
    """Run a prepare that must fail: one line, exit code 2, nothing written."""
    out = tmp_path / "out"
    before = sorted(os.listdir(tmp_path))
    code, printed, error = command("prepare", *arguments, "-o", out)
    assert code == 2
    assert printed == ""
    assert error.startswith("hcarec: ")
    assert error.count("\n") == 1
    assert sorted(os.listdir(tmp_path)) == before
    return error


def quarantine(folder: Path) -> list[tuple[str, str, str]]:
    with open(folder / "quarantine.csv", newline="") as file:
        return [(row["row"], row["reason"], row["content"]) for row in csv.DictReader(file)]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "'log.csv' is empty"),
        ("\n\n", "'log.csv' is empty"),
        (HEADER + "\n", "a header but no rows"),
        (HEADER, "a header but no rows"),
        ("user_id,user_id,item_id\n1,2,3\n", "2 columns named 'user_id'"),
        ("usr,item_id\n1,2\n", "looks like the user; name it with --user-col; its columns are 'usr', 'item_id'; did you mean 'usr'?"),
        (HEADER + "\n,,\n", "no event is left: 1 rows in, 1 quarantined (missing user id)"),
        ("\x00\x00\x00", "no column that looks like the user"),
        ("just one line of prose", "no column that looks like the user"),
    ],
)
def test_files_that_hold_no_log(command: Command, tmp_path: Path, content: str, says: str) -> None:
    assert says in refused(command, tmp_path, write(tmp_path / "log.csv", content))


def test_missing_things(command: Command, tmp_path: Path) -> None:
    assert "'nowhere.csv' does not exist" in refused(command, tmp_path, "nowhere.csv")
    assert "no file matches" in refused(command, tmp_path, tmp_path / "*.csv")
    (tmp_path / "empty").mkdir()
    assert "holds no event file" in refused(command, tmp_path, tmp_path / "empty")
    log = write(tmp_path / "log.csv", [HEADER, "u,i,1"])
    assert "no column 'user' (--user-col); its columns are 'user_id', 'item_id', 'timestamp'; did you mean 'user_id'?" in refused(
        command, tmp_path, log, "--user-col", "user"
    )
    assert "titles file" in refused(command, tmp_path, log, "--titles", tmp_path / "no.csv")
    code, _, error = command("prepare", log)
    assert (code, "add -o DATA" in error) == (2, True)
    code, _, error = command("prepare")
    assert (code, "no INPUT given" in error) == (2, True)


def test_options_that_make_no_sense(command: Command, tmp_path: Path) -> None:
    log = write(tmp_path / "log.csv", [HEADER, "u,i,1", "u,j,2"])
    assert "both 'user_id'" in refused(command, tmp_path, log, "--user-col", "user_id", "--item-col", "user_id")
    assert "time column is also the item column" in refused(command, tmp_path, log, "--time-col", "item_id")
    assert "repeats 'twice' is not known" in refused(command, tmp_path, log, "--repeats", "twice")
    assert "'half an hour' is not a span" in refused(command, tmp_path, log, "--session-gap", "half an hour")
    assert "no user could stay" in refused(command, tmp_path, log, "--min-user-events", "5", "--max-user-events", "3")
    assert "--since 'soon' is not a time" in refused(command, tmp_path, log, "--since", "soon")
    assert "encoding 'klingon' is not known" in refused(command, tmp_path, log, "--encoding", "klingon")
    assert "no event is left: 2 rows in, 2 dropped (users with fewer than 9 events)" in refused(command, tmp_path, log, "--min-user-events", "9")
    assert "time unit 'weeks'" in refused(command, tmp_path, log, "--time-unit", "weeks")
    no_time = write(tmp_path / "plain.csv", ["user_id,item_id", "u,i"])
    for option in ("--session-gap", "--since"):
        assert "need" in refused(command, tmp_path, no_time, option, "30m" if option == "--session-gap" else "2024-01-01")


def test_one_event_one_user(command: Command, tmp_path: Path) -> None:
    code, printed, _ = command("prepare", write(tmp_path / "log.csv", [HEADER, "u,i,1"]), "-o", tmp_path / "out")
    assert code == 0
    assert "1 users, 1 items" in printed
    assert rows(Sequences.open(tmp_path / "out")) == [("u", "i", 1)]


def test_a_million_events_in_one_user() -> None:
    n = 1_000_000
    data = prepare(pl.DataFrame({"user_id": ["u"] * n, "item_id": range(n), "timestamp": range(n, 0, -1)}))
    assert (data.n_users, data.n_events) == (1, n)
    assert data.item_ids[data.items[0]] == n - 1


def test_rows_that_cannot_be_used_go_to_quarantine(command: Command, tmp_path: Path) -> None:
    lines = [HEADER, "u,i,1", "u,j", "u,j,2,extra", ",j,3", "u,,4", "u,k,noon", "u,k,", 'u,"k"x,5', "v,\xff,6", "v,n\x00n,7", "", "w,ok,8"]
    path = write(tmp_path / "log.csv", "\n".join(lines).encode("latin-1"))
    code, printed, _ = command("prepare", path, "-o", tmp_path / "out")
    assert code == 0
    assert rows(Sequences.open(tmp_path / "out")) == [("u", "i", 1), ("w", "ok", 8)]
    assert quarantine(tmp_path / "out") == [
        ("2", "too few fields", "u,j"),
        ("3", "too many fields", "u,j,2,extra"),
        ("4", "missing user id", ",j,3"),
        ("5", "missing item id", "u,,4"),
        ("6", "unparsable time", "u,k,noon"),
        ("7", "missing time", "u,k,"),
        ("8", "text after a closing quote", 'u,"k"x,5'),
        ("9", "not valid text in the file's encoding", "v,\\xff,6"),
        ("10", "a NUL byte in an id", "v,n\\x00n,7"),
    ]
    assert "11  rows in" in printed
    assert "- 1  quarantined: missing time" in printed
    report = Sequences.open(tmp_path / "out").about["report"]
    assert report["rows"] == report["kept"] + report["quarantined"]["rows"] == 11
    assert report["blank_lines"] == 1
    assert "log.csv, row 2: too few fields ('u,j')" in refused(command, tmp_path, path, "--strict")


def test_bad_json_lines_go_to_quarantine(tmp_path: Path) -> None:
    deep = "[" * 5000
    path = write(
        tmp_path / "log.jsonl",
        ['{"user": "u", "item": "i", "time": 1}', "{nonsense", deep, "17", '{"user": "u", "time": 2}', '{"user": ["u"], "item": 1, "time": 3}'],
    )
    prepare(path, tmp_path / "out")
    assert [reason for _, reason, _ in quarantine(tmp_path / "out")] == ["not a JSON object"] * 3 + ["missing item id", "missing user id"]


def test_quotes_across_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "log.csv", 'user_id,item_id,timestamp\n"a,\r\nb","say ""hi""",1\nc,d,2\n')
    assert rows(prepare(path)) == [("a,\r\nb", 'say "hi"', 1), ("c", "d", 2)]


def test_a_quote_that_never_closes_costs_one_line(tmp_path: Path) -> None:
    path = write(tmp_path / "log.csv", [HEADER, 'u,"oops,1', "u,fine,2", "u,also,3"])
    data = prepare(path, tmp_path / "out")
    assert [item for _, item, _ in rows(data)] == ["fine", "also"]
    assert quarantine(tmp_path / "out") == [("1", "a quote that is never closed", 'u,"oops,1')]


def test_an_open_quote_in_a_large_file_does_not_swallow_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hcarec.data.read_text.BLOCK", 1 << 16)
    lines = [HEADER, 'u,"oops,0'] + [f"u,item{n},{n}" for n in range(200_000)]
    data = prepare(write(tmp_path / "log.csv", lines))
    assert data.n_events == 200_000
    assert data.about["report"]["quarantined"]["rows"] == 1


def test_unicode_ids_keep_their_form(tmp_path: Path) -> None:
    composed, apart = unicodedata.normalize("NFC", "é"), unicodedata.normalize("NFD", "é")
    data = prepare(write(tmp_path / "log.csv", [HEADER, f"{composed},😀,1", f"{apart},\u200b,2"]))
    assert list(data.user_ids) == [composed, apart]
    assert list(data.item_ids) == ["😀", "\u200b"]


def test_ids_beyond_64_bits(tmp_path: Path) -> None:
    ids = [2**63 - 1, 2**63, 2**64, 10**40, -(2**63) - 1]
    data = prepare(write(tmp_path / "log.csv", [HEADER] + [f"{n},{n},1" for n in ids]))
    assert list(data.user_ids) == ids == list(data.item_ids)


def test_damaged_files(command: Command, tmp_path: Path) -> None:
    content = "\n".join([HEADER] + [f"u{n},i{n * 7 % 1000},{n}" for n in range(20_000)]).encode()
    from backports import zstd

    for ending, pack in ((".gz", gzip.compress), (".zst", zstd.compress)):
        packed = pack(content)
        path = write(tmp_path / f"log.csv{ending}", packed[: len(packed) // 2])
        assert "is damaged or cut off" in refused(command, tmp_path, path)
    pl.DataFrame({"user_id": range(10_000), "item_id": range(10_000)}).write_parquet(tmp_path / "log.parquet")
    whole = (tmp_path / "log.parquet").read_bytes()
    write(tmp_path / "log.parquet", whole[: len(whole) // 2])
    assert "'log.parquet' cannot be read, it is damaged or cut off" in refused(command, tmp_path, tmp_path / "log.parquet")
    write(tmp_path / "log.parquet", b"not parquet at all")
    assert "is not a parquet file" in refused(command, tmp_path, tmp_path / "log.parquet")
    shutil.make_archive(str(tmp_path / "log"), "zip", tmp_path, "log.csv.gz")
    assert "is a zip archive" in refused(command, tmp_path, tmp_path / "log.zip")


def test_nothing_else_is_overwritten(command: Command, tmp_path: Path) -> None:
    log = write(tmp_path / "log.csv", [HEADER, "u,i,1"])
    (tmp_path / "mine").mkdir()
    write(tmp_path / "mine" / "thesis.txt", "precious")
    code, _, error = command("prepare", log, "-o", tmp_path / "mine")
    assert (code, "is not a prepared data set" in error) == (2, True)
    assert os.listdir(tmp_path / "mine") == ["thesis.txt"]
    assert command("prepare", log, "-o", tmp_path / "data")[0] == 0
    assert "prepared data set already" in refused(command, tmp_path, tmp_path / "data")
    assert command("prepare", write(log, [HEADER, "u,j,1"]), "-o", tmp_path / "data")[0] == 0
    assert list(Sequences.open(tmp_path / "data").item_ids) == ["j"]


def drop_privilege() -> None:
    """Let the next program obey permissions even if it is root's: take the right to override them out of its bounding set."""
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        libc.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="drops a Linux capability")
def test_no_permission(hcarec: Process, tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir()
    log = write(folder / "log.csv", [HEADER, "u,i,1"])
    log.chmod(0)
    done = hcarec("prepare", log, "-o", tmp_path / "out", code=2, preexec_fn=drop_privilege)
    assert done.stderr == f"hcarec: no permission to read '{log}'\n"
    log.chmod(0o600)
    folder.chmod(0)
    try:
        assert "no permission to read" in hcarec("prepare", folder, "-o", tmp_path / "out", code=2, preexec_fn=drop_privilege).stderr
    finally:
        folder.chmod(0o700)
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    done = hcarec("prepare", log, "-o", locked / "out", code=2, preexec_fn=drop_privilege)
    assert "cannot write" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_full_disk_leaves_the_old_or_nothing(hcarec: Process, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "none", disk], capture_output=True).returncode != 0:
        pytest.skip("a small disk can be mounted by root only")
    try:
        small = write(tmp_path / "small.csv", [HEADER, "u,i,1"])
        large = write(tmp_path / "large.csv", [HEADER] + [f"u{n},i{n},{n}" for n in range(30_000)])
        done = hcarec("prepare", large, "-o", disk / "data", code=2)
        assert f"cannot write '{disk / 'data'}'" in done.stderr
        assert os.listdir(disk) == []
        hcarec("prepare", small, "-o", disk / "data")
        hcarec("prepare", large, "-o", disk / "data", code=2)
        assert os.listdir(disk) == ["data"]
        assert rows(Sequences.open(disk / "data")) == [("u", "i", 1)]
    finally:
        subprocess.run(["umount", disk], check=True)


def test_mistakes_of_python_users() -> None:
    from hcarec.errors import ConfigError, InputError

    for frame in ({"user_id": [1], "item_id": [1, 2]}, {"user_id": [1, "x"], "item_id": [1, 2]}, 17, [3]):
        with pytest.raises(InputError):
            prepare(frame)
    good = {"user_id": [1], "item_id": [1], "time": [1]}
    for settings in ({"session_gap": 1800}, {"min_user_events": "3"}, {"since": object()}, {"no_such": 1}):
        with pytest.raises(ConfigError):
            prepare(good, **settings)


def test_words_that_look_like_markup_are_shown_as_they_are(command: Command, tmp_path: Path) -> None:
    log = write(tmp_path / "log.csv", ["user[/b],item_id", "u,i"])
    code, printed, _ = command("prepare", log, "-o", tmp_path / "out[/b][x]", "--user-col", "user[/b]")
    assert code == 0
    assert "user = user[/b]" in printed
    assert "out[/b][x]" in printed


def test_other_peoples_folders_are_left_alone(command: Command, tmp_path: Path) -> None:
    log = write(tmp_path / "log.csv", [HEADER, "u,i,1"])
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    write(foreign / "sequences.json", "{}")
    assert command("prepare", log, "-o", foreign)[0] == 2
    assert command("prepare", log, "-o", tmp_path / "data")[0] == 0
    write(tmp_path / "data" / "notes.txt", "mine")
    code, _, error = command("prepare", log, "-o", tmp_path / "data")
    assert (code, "also holds 'notes.txt'" in error) == (2, True)


def test_near_names_are_suggested(command: Command, tmp_path: Path) -> None:
    assert "did you mean 'retailrocket'?" in refused(command, tmp_path, "retailroket")
    assert "INPUT is empty" in refused(command, tmp_path, "")
    assert "encoding 'rot13' is not known" in refused(command, tmp_path, write(tmp_path / "l.csv", [HEADER, "u,i,1"]), "--encoding", "rot13")
    assert "knob" in refused(command, tmp_path, "synthetic", "--set", "users=abc")
    assert "JSON array" in refused(command, tmp_path, write(tmp_path / "l.json", '[{"user": 1}]'))
