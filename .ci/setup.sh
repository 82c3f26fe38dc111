# Read by examples/try, tests/run and .ci/run: what they need from the system, and how it gets here.
# Debian 12 and later; elsewhere the packages are named and the rest is up to you.

build_packages="g++ ccache meson ninja-build pkg-config nlohmann-json3-dev libcli11-dev zlib1g-dev libdw-dev libbz2-dev liblzma-dev libprotozero-dev libboost1.81-dev libsqlite3-dev doctest-dev"
# Debian's torch multiplies matrices by the best libblas.so.3 that is there: without OpenBLAS by the reference, in 15 times the time.
test_packages="libopenblas0-serial gcc git gdb openmpi-bin binutils strace libtorch-test libtorch-dev clang-format-14 clang-tidy-14 clang-14 libclang-rt-14-dev python3-coverage python3-yaml libpython3.11-testsuite
    python3-gevent python3-pytest-xdist libjemalloc2 protobuf-compiler chromium btrfs-progs debuginfod libunwind8 python3-pandas prometheus"
roots_packages="debootstrap"
cross_packages="g++-aarch64-linux-gnu qemu-user-static"
package_packages="python3-venv virtualenv lintian zsh fish python3-jinja2"

say() { echo "== $*" >&2; }

# minutes BEGAN: how many whole ones have passed since it was BEGAN by `date +%s`.
minutes() { echo $((($(date +%s) - $1) / 60)); }

# install_missing PACKAGE...: those that are not there, with apt-get.
install_missing() {
    missing=""
    for package in "$@"; do
        dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing="$missing $package"
    done
    [ -z "$missing" ] && return
    say "installing$missing"
    as_root=""
    [ "$(id -u)" = 0 ] || as_root=sudo
    $as_root apt-get -qq update >/dev/null
    # Tests start a Prometheus of their own. Debian's package would start one at once and at every boot, on port 9090.
    case "$missing " in
    *" prometheus "*) $as_root sh -c 'cd /etc/systemd/system && [ ! -e prometheus.service ] && ln -s /dev/null prometheus.service' 2>/dev/null || : ;;
    esac
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o Dpkg::Use-Pty=0 --no-install-recommends install $missing >/dev/null
}

# python_with MODULE...: the first python3 that can import them all. The first on PATH often cannot.
python_with() {
    modules=$(echo "$*" | tr ' ' ,)
    for python in python3 /usr/bin/python3 /usr/local/bin/python3 python3.14 python3.13 python3.12 python3.11 python3.10; do
        if "$python" -c "import $modules" 2>/dev/null; then
            "$python" -c "import sys; print(sys.executable)"
            return
        fi
    done
    return 1
}

# need_python MODULE=PACKAGE...: as python_with; where there is none, Debian's python3 with Debian's packages.
need_python() {
    modules="" packages="python3"
    for pair in "$@"; do
        modules="$modules ${pair%%=*}" packages="$packages ${pair#*=}"
    done
    python_with $modules && return
    install_missing $packages
    python_with $modules
}

# configure DIRECTORY [MESON OPTION...]: a new build directory, or other options for an old one.
configure() {
    directory=$1
    shift
    # Not `meson configure`: that knows no option that is newer than the directory.
    [ ! -f "$directory/build.ninja" ] || set -- --reconfigure "$@"
    meson setup "$directory" "$@" >/tmp/torchprof-meson.$$ || { cat /tmp/torchprof-meson.$$ >&2; return 1; }
    rm -f /tmp/torchprof-meson.$$
}

# copy_installed DIRECTORY: the tree that `meson install` would make, in DIRECTORY/installed. The prefix of DIRECTORY stays as it is: it is for
# the `meson install` that installs for good.
copy_installed() {
    rm -rf "$1/installed" "$1/destination"
    meson install -C "$1" --no-rebuild --quiet --destdir "$PWD/$1/destination"
    launcher=$(find "$1/destination" -path '*/bin/torchprof')
    mv "${launcher%/bin/torchprof}" "$1/installed"
    rm -rf "$1/destination"
}

# compile DIRECTORY [TARGET...]: without targets, everything. On a terminal it takes one line. Where ccache is installed Meson uses it; to it the same
# sources are the same in every checkout.
compile() {
    say "building in $1"
    CCACHE_BASEDIR="$PWD" CCACHE_NOHASHDIR=1 ninja -C "$@" >&2
}

# but_unit_tests DIRECTORY: the targets that are built by default, without the unit tests, which take longer to compile than the rest.
but_unit_tests() {
    meson introspect "$1" --targets | python3 -c "
import json, os, sys
here = os.getcwd()
for target in json.load(sys.stdin):
    if target['build_by_default'] and not os.path.relpath(target['defined_in'], here).startswith('tests/unit/'):
        print(*(os.path.relpath(name, os.path.join(here, sys.argv[1])) for name in target['filename']))
" "$1"
}
