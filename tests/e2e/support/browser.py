"""Chromium, without a window, on pages of ours: what a script that is added to a copy of the page says of it."""
import http.server
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import threading

import pytest

from conftest import PATIENCE

needs_chromium = pytest.mark.skipif(not shutil.which("chromium"), reason="tests in a browser run where Debian's chromium is installed")

# Scripts of tests are this one's insides: `said` is what comes back, `view` what a tab shows, `until` waits.
FRAME = """
<script>
(async () => {
const said = {};
const view = () => document.getElementById("view");
const until = async what => {
  for (let i = 0; !what(); ++i) {
    if (i > 500) throw new Error("never: " + what);
    await new Promise(done => setTimeout(done, 20));
  }
};
const type = text => { const at = document.getElementById("search"); at.value = text; at.dispatchEvent(new Event("input")); };
try {
%s
} catch (error) { said.error = String(error.stack); }
document.body.replaceChildren(document.createTextNode("SAID" + JSON.stringify(said) + "DIAS"));
})();
</script></body>"""


def chromium(profile, *arguments):
    # A frame in a process of its own has a time of its own, and the virtual time of the page may end before it has loaded.
    done = subprocess.run(["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-features=IsolateSandboxedIframes",
                           "--user-data-dir=%s" % profile, *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return done.stdout


def said_in(dom):
    """What `said` was, of a page's text after its scripts."""
    said = json.loads(re.search(r"SAID(.*)DIAS", dom, re.S)[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    assert "error" not in said, said["error"]
    return said


def visit(page, script, place, *options, fragment=""):
    """What the script says of the page. Time passes as fast as the page has nothing to do."""
    visited = place / "visited.html"
    visited.write_text(page.read_text().replace("</body>", FRAME % script))
    dom = chromium(place / "profile", *options, "--virtual-time-budget=60000", "--dump-dom", visited.as_uri() + fragment)
    return said_in(dom.rpartition("<body>")[2])


def visit_in_time(page, script, place, fragment=""):
    """As visit(), in time as it passes: Chromium does not go back in its history while it lets time jump. The copy of the page may tell a server of ours."""
    told = queue.Queue()

    class Listener(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            told.put(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Listener) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        tell = 'fetch("http://127.0.0.1:%d/", { method: "POST", mode: "no-cors", body: "SAID" + JSON.stringify(said) + "DIAS" });' % server.server_port
        visited = place / "visited.html"
        text = page.read_text().replace("default-src 'none'", "default-src 'none'; connect-src *")
        visited.write_text(text.replace("</body>", FRAME.replace("document.body.replaceChildren", tell + " document.body.replaceChildren") % script))
        browser = subprocess.Popen(["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0",
                                    "--user-data-dir=%s" % (place / "profile"), visited.as_uri() + fragment],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            return said_in(told.get(timeout=PATIENCE))
        finally:
            os.killpg(browser.pid, signal.SIGKILL)
            browser.wait()
            server.shutdown()
