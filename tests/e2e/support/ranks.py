"""usage: ranks.py RANKS "FILE ARG..." ...: each argument is a job of so many ranks with gloo, and they run one after another. The exit status is 1 if a rank failed."""
import os
import subprocess
import sys

environment = dict(os.environ, MASTER_PORT="29%03d" % (os.getpid() % 1000), MASTER_ADDR="127.0.0.1", WORLD_SIZE=sys.argv[1], USE_LIBUV="0")
for job in sys.argv[2:]:
    ranks = [subprocess.Popen([sys.executable, *job.split()], env=dict(environment, RANK=str(rank))) for rank in range(int(sys.argv[1]))]
    if any([rank.wait() for rank in ranks]):
        sys.exit(1)
