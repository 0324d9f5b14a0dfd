#!/bin/sh
# Installs elf into the environment of a Python, as it is developed:  sh deploy/install.sh .venv/bin/python
# What it depends on is exactly what deploy/*.lock say, by version and hash of each file (`make lock` writes
# them). Only where the package index has no such version others are taken, which is said; a file with another
# hash ends it. LOCKED=only: never others.
set -eu

python=$1
pip() {
    "$python" -m pip install --quiet --disable-pip-version-check "$@"
}

locked() { # what builds packages first, so that nothing else is fetched for that
    pip --require-hashes -r deploy/build.lock &&
        pip --require-hashes --no-build-isolation -r deploy/requirements.lock &&
        pip --no-deps --no-build-isolation --editable .
}

said=$(locked 2>&1) && exit 0
printf '%s\n' "$said" | cut -c 1-300 >&2
case "$said" in
*"HASHES"*) exit 1 ;;
*"No matching distribution found"*) [ "${LOCKED:-}" != only ] || exit 1 ;;
*) exit 1 ;;
esac
echo "elf: the package index lacks a locked version (above); other versions are installed, unchecked" >&2
pip --editable '.[spark,dev]'
