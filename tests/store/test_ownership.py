"""What another user made, or can exchange, is not trusted: every step of the way counts."""

from __future__ import annotations

import grp
import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from perflib.model.errors import UserError
from perflib.store import ownership
from perflib.store.files import replacing
from perflib.store.ownership import (
    check_writable,
    distrust,
    distrust_status,
    make_folder,
)
from perflib.store.regular import open_regular
from tests.users import ORDINARY, as_ordinary, needs_two_users

_TOP = Path(__file__).parents[2]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file three folders deep."""
    made = tmp_path / "a" / "b" / "file"
    make_folder(made.parent)
    made.write_text("")
    made.chmod(0o644)
    return made


def test_what_is_ours_all_the_way_is_trusted(file: Path) -> None:
    assert distrust(file) == ""
    assert distrust(file, root=False) == ""
    assert distrust(file.parent / "missing" / "deeper") == ""
    assert distrust(Path("/tmp/../usr/./bin")) == ""
    assert distrust(Path("/usr/bin/env").resolve(), root=os.geteuid() != 0) == ""


@pytest.mark.parametrize("mode", [0o777, 0o757, 0o775])
def test_a_folder_above_that_others_can_write_to_is_named(
    file: Path, mode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ownership, "_is_private", lambda _group: False)
    above = file.parents[1]
    above.chmod(mode)
    said = f"{above} can be written by others (mode {mode:o})"
    assert distrust(file) == distrust(file.parent / "missing") == said
    assert distrust(file, group="any") == ("" if mode == 0o775 else said)


def test_in_a_sticky_folder_only_the_owner_of_a_file_exchanges_it(file: Path) -> None:
    file.parents[1].chmod(0o1777)
    assert distrust(file) == ""
    assert distrust(file.parents[1]).endswith("a can be written by others (mode 777)")


def test_the_group_that_is_the_users_own_may_write_to_folders_above(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for private in (True, False):
        monkeypatch.setattr(ownership, "_is_private", lambda _group, so=private: so)
        file.parents[1].chmod(0o775)
        assert (distrust(file) == "") == private
        file.parents[1].chmod(0o755)
        file.chmod(0o664)
        assert distrust(file).endswith("file can be written by others (mode 664)")
        assert (distrust_status(file.stat()) == "") == private
        file.chmod(0o644)


def test_which_group_is_private(monkeypatch: pytest.MonkeyPatch) -> None:
    def be(user: str, primary: int, group: str, members: list[str]) -> bool:
        person = pwd.struct_passwd((user, "x", 5, primary, "", "", ""))
        named = grp.struct_group((group, "x", 7, members))
        monkeypatch.setattr(pwd, "getpwuid", lambda _uid: person)
        monkeypatch.setattr(grp, "getgrgid", lambda _gid: named)
        return ownership._is_private(7)

    assert be("ada", 7, "ada", [])
    assert be("ada", 7, "ada", ["ada"])
    assert not be("ada", 7, "ada", ["ada", "eve"])
    assert not be("ada", 7, "users", [])
    assert not be("ada", 8, "ada", [])


def test_links_on_the_way_are_followed_and_judged(file: Path, tmp_path: Path) -> None:
    wide = tmp_path / "wide"
    wide.mkdir()
    (wide / "target").mkdir()
    wide.chmod(0o777)
    for target in (wide / "target", Path("../../wide/target")):
        link = file.parent / "link"
        link.symlink_to(target)
        assert distrust(link / "missing") == f"{wide} can be written by others (mode 777)"
        assert distrust(link) == f"{link} is a symbolic link"
        link.unlink()
    first, second = tmp_path / "first", tmp_path / "second"
    first.symlink_to(second)
    second.symlink_to(first)
    with pytest.raises(OSError, match="symbolic links"):
        distrust(first / "x")


@needs_root
def test_another_owner_anywhere_on_the_way_is_refused(file: Path, tmp_path: Path) -> None:
    for stolen in (file, file.parent, file.parents[1]):
        os.chown(stolen, ORDINARY, ORDINARY)
        assert distrust(file) == f"{stolen} belongs to user id {ORDINARY}, not to you (0)"
        os.chown(stolen, 0, 0)
    link = tmp_path / "link"
    link.symlink_to(file.parent)
    assert distrust(link / "file") == ""
    os.chown(link, ORDINARY, ORDINARY, follow_symlinks=False)
    assert distrust(link / "file").startswith(f"{link} belongs to user id {ORDINARY}")


@needs_root
def test_an_ordinary_user_trusts_root_and_nobody_else(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: ORDINARY)
    assert distrust(file) == ""
    assert distrust(file, root=False).endswith(f"not to you ({ORDINARY})")
    os.chown(file, ORDINARY + 1, -1)
    assert distrust(file).endswith(f"not to root or you ({ORDINARY})")


def test_a_container_without_privileges_trusts_what_is_above_its_folders() -> None:
    """There ``/`` and all of root's belongs to nobody, because the host's root has no number."""
    needs_two_users()
    code = (
        "from pathlib import Path; from perflib.store.ownership import distrust\n"
        "print(Path('/').stat().st_uid, distrust(Path('/usr/missing')), distrust(Path('/usr')))"
    )
    argv = ["unshare", "--user", "--map-current-user", sys.executable, "-c", code]
    done = subprocess.run(as_ordinary(argv), capture_output=True, text=True, check=False, cwd=_TOP)
    if "unshare:" in done.stderr:
        pytest.skip(f"no user namespaces here: {done.stderr}")
    assert done.stdout == (
        f"65534  /usr belongs to user id 65534, not to root or you ({ORDINARY})\n"
    ), done


def test_a_store_that_others_can_exchange_is_not_written(tmp_path: Path) -> None:
    store = tmp_path / "home" / "runs"
    check_writable(store)
    make_folder(store)
    check_writable(store)
    store.chmod(0o777)
    with pytest.raises(UserError, match=r"mode 777.*nothing is written to .*runs.*PERFLIB_HOME"):
        check_writable(store)


def test_folders_are_made_for_their_user_whatever_the_umask_is(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_folder(tmp_path / "a" / "b", 0o700)
    finally:
        os.umask(before)
    modes = [path.stat().st_mode & 0o777 for path in (tmp_path / "a", tmp_path / "a" / "b")]
    assert modes == [0o755, 0o700]


def test_only_an_ordinary_file_is_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "real").write_text("")
    (tmp_path / "link").symlink_to("real")
    os.close(open_regular(tmp_path / "real", os.O_RDWR))
    for name in ("pipe", "link", "missing"):
        with pytest.raises(OSError, match=name):
            open_regular(tmp_path / name, os.O_RDWR | os.O_NOFOLLOW)


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert not path.exists()
    assert path.read_text() == "new"
    with pytest.raises(ZeroDivisionError), replacing(path) as temporary:
        temporary.write_bytes(b"half" * (temporary.write_bytes(b"half") // 0))
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]
