"""usage: hosts.py RANKS HOST,... PROGRAM ARG...: ranks with gloo, spread over so many machines: each has its host name (UTS namespace), and all of them this
machine's network. `-`: this machine as it is. HOSTS=FIRST..LAST/ALL instead of RANKS: these ranks of so many. The exit status is 1 if a rank failed."""
import os
import subprocess
import sys

ranks, hosts = sys.argv[1], sys.argv[2].split(",")
first, last, count = [int(n) for n in ranks.replace("..", "/").split("/")] if "/" in ranks else (0, int(ranks) - 1, int(ranks))
environment = dict(os.environ, MASTER_ADDR="127.0.0.1", WORLD_SIZE=str(count), USE_LIBUV="0", GLOO_SOCKET_IFNAME="lo")
environment.setdefault("MASTER_PORT", "29%03d" % (os.getpid() % 1000))


def on(host):
    return [] if host == "-" else ["unshare", "--map-root-user", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', host]


started = [subprocess.Popen([*on(hosts[(rank - first) * len(hosts) // (last + 1 - first)]), sys.executable, *sys.argv[3:]], env=dict(environment, RANK=str(rank)))
           for rank in range(first, last + 1)]
sys.exit(any([rank.wait() for rank in started]))
