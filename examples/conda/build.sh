#!/bin/sh
# What conda runs in the unpacked tarball.
set -eu
mkdir -p "$PREFIX"
cp -R bin lib share "$PREFIX/"
