# usage: in_root.sh DIST PYTHON PROGRAM WANTED: in a bare root of Debian, as root: installs each package of DIST, profiles PROGRAM with it, and
# takes it away again. Says "OK KIND SECONDS" for each, from installation to report. WANTED is a line of the report. Nothing of the network
# is used.
set -eu
dist=$1 python=$2 program=$(readlink -f "$3") wanted=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# try KIND COMMAND...: a capture by an installed torchprof, and what it must have made.
try() {
    kind=$1
    shift
    "$@" run -q -o "$work/run-$kind" "$python" "$program" >"$work/out" 2>"$work/err" || { cat "$work/err"; exit 1; }
    "$@" report "$work/run-$kind" >"$work/table"
    grep -qx "$wanted" "$work/table" || { cat "$work/err" "$work/table"; exit 1; }
    echo "OK $kind $(($(date +%s) - began))"
    began=$(date +%s)
}
began=$(date +%s)

mkdir tarball
tar -xzf "$dist"/torchprof-*-linux-"$(uname -m)".tar.gz -C tarball
mv tarball/torchprof-* "tarball/somewhere else"
mv "tarball/somewhere else" tarball/elsewhere
try tarball tarball/elsewhere/bin/torchprof

"$python" -m venv --system-site-packages venv
venv/bin/pip install --quiet --no-index "$dist"/torchprof_cli-*_"$(uname -m)".whl
[ "$(venv/bin/python -c 'import torchprof; print(torchprof.path())')" = "$(readlink -f venv/bin/torchprof)" ]
try wheel venv/bin/torchprof
try module venv/bin/python -m torchprof
venv/bin/pip uninstall --quiet --yes torchprof-cli
[ -z "$(find venv -iname '*torchprof*' -type f)" ] || { find venv -iname '*torchprof*'; exit 1; }

touch mark
dpkg --install "$dist"/torchprof_*_"$(dpkg --print-architecture)".deb >/dev/null
try deb torchprof
dpkg --purge torchprof >/dev/null 2>&1
left=$(find / -xdev -iname '*torchprof*' -newer mark ! -path '/tmp/*' ! -path '/srv/*' ! -path '/var/lib/dpkg/*' ! -path '/proc/*' ! -path "$work/*")
[ -z "$left" ] || { echo "left behind: $left"; exit 1; }
