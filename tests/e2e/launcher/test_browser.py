"""`report --open`, `report --serve` and `run --open`: a page in a browser, its address where there is none, and a server for this machine alone."""
import http.client
import os
import pathlib
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.parse

import pytest

from conftest import PATIENCE, clean_environment, profile

pytestmark = pytest.mark.once

NO_BROWSER = {"BROWSER": None, "DISPLAY": None, "WAYLAND_DISPLAY": None}


@pytest.fixture(scope="module")
def run(launcher, tmp_path_factory):
    directory = tmp_path_factory.mktemp("a b,é")
    done = profile(launcher, directory / "run", [sys.executable, "-c", "def shown_on_the_page(): return sum(range(10**6))\nshown_on_the_page()"], options=["-q"])
    assert done.status == 0, done.stderr
    return done.directory


@pytest.fixture
def browser(tmp_path):
    """A browser that writes down what it is given, and the environment that has it. The file is a FIFO: reading it waits for the browser."""
    said = tmp_path / "said"
    subprocess.run(["mkfifo", said], check=True)
    program = tmp_path / "browser"
    program.write_text("#!/bin/sh\nprintf '%%s\\n' \"$@\" >%s\n" % shlex.quote(str(said)))
    program.chmod(0o755)
    return program, said


def test_the_page_of_a_run_is_opened(run, torchprof, browser):
    program, said = browser
    reader = subprocess.Popen(["cat", said], stdout=subprocess.PIPE, text=True)
    done = torchprof("report", run, "--open", env={"BROWSER": program})
    address, = reader.communicate(timeout=PATIENCE)[0].split()
    assert done.returncode == 0 and done.stdout == "" and address in done.stderr
    file = pathlib.Path(urllib.parse.unquote(urllib.parse.urlsplit(address).path))
    assert address.startswith("file:///") and file == run / "report.html" and "shown_on_the_page" in file.read_text()


@pytest.mark.parametrize("browsers, expected", [
    ("/nowhere/browser:PROGRAM --new %s --last", ["--new", "ADDRESS", "--last"]), ("PROGRAM %s:never", ["ADDRESS"]), ("PROGRAM", ["ADDRESS"]),
    # With quotes, and as behind the shell, as webbrowser of Python takes it.
    ("PROGRAM %s &", ["ADDRESS"]), ("PROGRAM --new-window '--url=%s/%s' \"a b\" c\\ d", ["--new-window", "--url=ADDRESS/ADDRESS", "a b", "c d"])])
def test_browsers_are_tried_in_their_order(run, torchprof, browser, tmp_path, browsers, expected):
    program, said = browser
    reader = subprocess.Popen(["cat", said], stdout=subprocess.PIPE, text=True)
    done = torchprof("report", run, "--open", "--html", tmp_path / "page.html", env={"BROWSER": browsers.replace("PROGRAM", str(program))})
    assert done.returncode == 0, done.stderr
    assert reader.communicate(timeout=PATIENCE)[0].split("\n")[:-1] == [word.replace("ADDRESS", (tmp_path / "page.html").as_uri()) for word in expected]


@pytest.mark.parametrize("browser_of", [NO_BROWSER, {**NO_BROWSER, "BROWSER": "/nowhere/browser"}], ids=["none", "not there"])
def test_without_a_browser_the_address_is_printed(run, torchprof, tmp_path, browser_of):
    done = torchprof("report", run, "--open", "--html", tmp_path / "page.html", env=browser_of)
    assert done.returncode == 0
    assert done.stderr == ("torchprof: %s: written\n" % (tmp_path / "page.html") +
                           "torchprof: there is no browser to open it in ($BROWSER, or xdg-open with a display): %s\n" % (tmp_path / "page.html").as_uri())


def test_a_run_opens_its_page_at_its_end_and_ends_as_the_command(launcher, browser, tmp_path):
    program, said = browser
    reader = subprocess.Popen(["cat", said], stdout=subprocess.PIPE, text=True)
    done = profile(launcher, tmp_path / "run", [sys.executable, "-c", "print('of the program'); raise SystemExit(3)"], options=["--open"], env={"BROWSER": program})
    assert (done.status, done.stdout) == (3, "of the program\n"), done.stderr
    assert reader.communicate(timeout=PATIENCE)[0].split() == [(tmp_path / "run" / "report.html").as_uri()]
    # The next run into the same place has a page of its own.
    again = profile(launcher, tmp_path / "run", [sys.executable, "-c", "pass"], options=["--discard", "--open"], env=NO_BROWSER)
    assert again.status == 0 and (tmp_path / "run" / "report.html").as_uri() in again.stderr
    assert "raise SystemExit" not in (tmp_path / "run" / "report.html").read_text()


def files_of(directory):
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_page_that_nobody_named_replaces_only_a_page(run, torchprof, tmp_path):
    """Beside us, where the run is no run of its directory: a copy, an archive, a spool, a directory of spools."""
    spool, = (run / "spool").glob("*.spool")
    shutil.copytree(run, tmp_path / "copy", ignore=shutil.ignore_patterns("report.html"))
    (tmp_path / "spools").mkdir()
    shutil.copy(spool, tmp_path / "spools")
    shutil.copy(spool, tmp_path / "a.spool")
    subprocess.run(["tar", "czf", tmp_path / "run.tar.gz", "-C", run.parent, "run"], check=True)
    before = files_of(tmp_path)
    for name in "copy", "copy/", "run.tar.gz", "spools", "spools/", "a.spool":
        done = torchprof("report", tmp_path / name if not name.endswith("/") else "%s/" % (tmp_path / name), "--open", env=NO_BROWSER, cwd=tmp_path)
        page = tmp_path / (name.strip("/") + ".html")
        assert done.returncode == 0 and page.as_uri() in done.stderr, done.stderr
        assert "shown_on_the_page" in page.read_text()
        assert {path: data for path, data in files_of(tmp_path).items() if path.suffix != ".html"} == before
        page.write_text("notes of somebody")
        done = torchprof("report", tmp_path / name, "--open", env=NO_BROWSER, cwd=tmp_path)
        assert done.returncode == 125 and "no page of torchprof" in done.stderr and page.read_text() == "notes of somebody"
        page.unlink()
        os.mkfifo(page)  # nobody reads it, and nobody waits for that
        assert torchprof("report", tmp_path / name, "--open", env=NO_BROWSER, cwd=tmp_path).returncode == 125
        page.unlink()


def test_what_is_read_is_never_written_over(run, torchprof, tmp_path):
    spool, = (run / "spool").glob("*.spool")
    shutil.copytree(run, tmp_path / "run")
    shutil.copy(spool, tmp_path / "a.spool")
    assert torchprof("export", run, "-f", "kineto", "-o", tmp_path / "a.json.gz").returncode == 0
    assert torchprof("collect", run, "-o", tmp_path / "a.tar.gz").returncode == 0
    (tmp_path / "link").symlink_to("a.spool")
    before = files_of(tmp_path)
    for name in "a.spool", "a.json.gz", "a.tar.gz", "link":
        for command in (["report", name, "--html", name], ["report", name, "--serve", "--html", name], ["export", name, "-f", "kineto", "-o", name],
                        ["diff", name, run, "--html", name], ["diff", run, name, "--junit", name]):
            done = torchprof(*command, cwd=tmp_path)
            assert done.returncode != 0 and "is what is read" in done.stderr, (command, done.stderr)
    for output in ("run/run.json", "run/spool/new.tar.gz", "run/spool/" + spool.name):
        assert torchprof("collect", "run", "-o", output, cwd=tmp_path).returncode == 125
    assert torchprof("report", "run", "--html", "run/spool/" + spool.name, cwd=tmp_path).returncode == 125
    assert files_of(tmp_path) == before


@pytest.fixture
def served(run, launcher):
    """A server of the page, and the address that it has said."""
    server = subprocess.Popen([launcher, "report", run, "--serve"], stderr=subprocess.PIPE, text=True, env=clean_environment(NO_BROWSER))
    line = server.stderr.readline()
    match = re.match(r"torchprof: (http://127\.0\.0\.1:(\d+)/([0-9a-f]{32})/): the page", line)
    assert match, line + server.stderr.read()
    yield server, match[1], int(match[2]), match[3]
    server.kill()
    server.wait()


def ask(port, path, method="GET", host=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.putrequest(method, path, skip_host=host is not None)
    for name in host or ():
        connection.putheader("Host", name)
    connection.endheaders()
    answer = connection.getresponse()
    return answer.status, answer.read().decode(), dict(answer.getheaders())


def test_the_page_is_served_to_who_has_the_address_until_ctrl_c(run, served):
    server, address, port, token = served
    status, page, fields = ask(port, "/%s/" % token)
    assert status == 200 and "shown_on_the_page" in page and page.rstrip().endswith("</html>")
    assert fields["Content-Type"] == "text/html; charset=utf-8" and fields["Cache-Control"] == "no-store" and fields["Referrer-Policy"] == "no-referrer"
    assert ask(port, "/%s/" % token, "HEAD")[:2] == (200, "")
    other = token[:-1] + ("1" if token.endswith("0") else "0")
    for path in ("/", "/favicon.ico", "/%s" % token, "/%s/x" % token, "/%s/" % ("0" * 32), "/%s/" % other, "/../%s/" % token):
        status, text, _ = ask(port, path)
        assert status == 404 and "shown_on_the_page" not in text, path
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert ask(port, "/%s/" % token, method)[0] == 405
    # A name that a page of the web has given an address of this machine.
    for host in (["evil.example"], ["evil.example:%d" % port], ["127.0.0.1.evil.example"], [""], [], ["127.0.0.1", "evil.example"]):
        status, text, _ = ask(port, "/%s/" % token, host=host)
        assert status == 421 and "shown_on_the_page" not in text, host
    for host in ("localhost:8080", "127.0.0.1", "127.0.0.1:%d" % port):  # a tunnel has a port of its own
        assert ask(port, "/%s/" % token, host=[host])[0] == 200
    server.send_signal(signal.SIGINT)
    assert server.wait(timeout=PATIENCE) == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_each_address_is_new_and_other_machines_cannot_reach_it(run, launcher, served):
    _, _, port, token = served
    with open("/proc/net/tcp") as table:
        listening = [line.split()[1] for line in table if line.split()[3] == "0A"]
    assert "0100007F:%04X" % port in listening and "00000000:%04X" % port not in listening
    other = subprocess.Popen([launcher, "report", run, "--serve"], stderr=subprocess.PIPE, text=True, env=clean_environment(NO_BROWSER))
    assert token not in other.stderr.readline()
    other.terminate()
    assert other.wait(timeout=PATIENCE) == 0


def test_who_connects_and_says_nothing_keeps_nobody_away(served):
    """Browsers do so, too, before they need it."""
    _, _, port, token = served
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(30)]
    for _ in range(20):
        began = time.monotonic()
        assert ask(port, "/%s/" % token)[0] == 200
        assert time.monotonic() - began < 5  # half of what a connection may be silent
        silent.append(socket.create_connection(("127.0.0.1", port)))
    for each in silent: each.close()


@pytest.mark.parametrize("ignored, ends", [(signal.SIGHUP, signal.SIGTERM), (signal.SIGINT, signal.SIGTERM)])
def test_a_signal_that_is_ignored_does_not_end_it(run, launcher, ignored, ends):
    """Under nohup, and in the background of a script."""
    server = subprocess.Popen(["sh", "-c", "trap '' %d; exec \"$@\"" % ignored, "sh", launcher, "report", run, "--serve"], stderr=subprocess.PIPE, text=True,
                              env=clean_environment(NO_BROWSER))
    port, token = re.search(r"127\.0\.0\.1:(\d+)/([0-9a-f]{32})/", server.stderr.readline()).groups()
    server.send_signal(ignored)
    for _ in range(3):
        assert ask(int(port), "/%s/" % token)[0] == 200
    server.send_signal(ends)
    assert server.wait(timeout=PATIENCE) == 0
