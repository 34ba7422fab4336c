"""A Kerberos realm for one run: MIT's KDC as an ordinary process, in a folder, on free ports."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.running.ports import free_port

REALM = "SPLASHDAM.TEST"

_KRB5_CONF = """[libdefaults]
 default_realm = {realm}
 dns_lookup_kdc = false
 dns_lookup_realm = false
 dns_canonicalize_hostname = false
 rdns = false
[realms]
 {realm} = {{
  kdc = 127.0.0.1:{port}
 }}
"""
_KDC_CONF = """[kdcdefaults]
 kdc_listen = 127.0.0.1:{port}
 kdc_tcp_listen = 127.0.0.1:{port}
[logging]
 kdc = STDERR
[realms]
 {realm} = {{
  database_name = {folder}/principal
  key_stash_file = {folder}/stash
  max_life = 1h
 }}
"""


_PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")


def tools_missing() -> list[str]:
    """MIT's programs that are not here."""
    return [name for name in _PROGRAMS if _found(name) is None]


class Realm:
    """One with a KDC that runs.

    Attributes:
        environment: what programs need to find it.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        port = free_port()
        (folder / "krb5.conf").write_text(_KRB5_CONF.format(realm=REALM, port=port))
        (folder / "kdc.conf").write_text(_KDC_CONF.format(realm=REALM, port=port, folder=folder))
        self.environment = {
            "KRB5_CONFIG": str(folder / "krb5.conf"),
            "KRB5_KDC_PROFILE": str(folder / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{folder}/cache",
            "KRB5RCACHENAME": f"file2:{folder}/rcache",
        }
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master-of-a-test")

    def add(self, principal: str) -> str:
        """A principal with a random key; the path of its keytab."""
        keytab = self._folder / f"{principal.replace('/', '-')}.keytab"
        self._run("kadmin.local", "-r", REALM, "addprinc", "-randkey", principal)
        self._run("kadmin.local", "-r", REALM, "ktadd", "-k", str(keytab), principal)
        return str(keytab)

    def login(self, principal: str, keytab: str) -> None:
        """Fills the cache, as somebody does in the morning."""
        self._run("kinit", "-k", "-t", keytab, principal)

    def logout(self) -> None:
        """Nobody is logged in."""
        (self._folder / "cache").unlink(missing_ok=True)

    @contextmanager
    def running(self) -> Iterator[Realm]:
        """The KDC, until the end of the block."""
        process = subprocess.Popen(
            [_path_of("krb5kdc"), "-n", "-r", REALM, "-P", str(self._folder / "pid")],
            env={**os.environ, **self.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        said = ""
        for line in lines:
            said += line
            if "commencing operation" in line:
                break
        else:
            raise RuntimeError(f"krb5kdc did not start: {said}")
        reader = threading.Thread(target=lambda: [None for _ in lines], daemon=True)
        reader.start()
        try:
            yield self
        finally:
            process.terminate()
            process.wait()
            reader.join()
            process.stdout.close()

    def _run(self, *command: str) -> None:
        done = subprocess.run(
            [_path_of(command[0]), *command[1:]],
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{command[0]}: {done.stdout} {done.stderr}")


def _found(name: str) -> str | None:
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")


def _path_of(name: str) -> str:
    found = _found(name)
    assert found is not None
    return found
