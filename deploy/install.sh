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

compiler() { # for elf's native part: the one that Python was built with, another, or one from the package index
    own=$("$python" -c 'import sysconfig; print((sysconfig.get_config_var("CC") or "cc").split()[0])')
    if [ -n "${CC:-}" ] || command -v "$own" >/dev/null; then return; fi
    for other in cc gcc clang; do
        if command -v "$other" >/dev/null; then export CC="$other" && return; fi
    done
    if pip --require-hashes -r deploy/compiler.lock >/dev/null 2>&1; then
        CC="$("$python" -c 'import ziglang; print(ziglang.__path__[0])')/zig cc" && export CC
    fi
}

native() { # without it everything works
    "$python" -c 'import sys; from elf import native; sys.exit(native.why_not() or 0)' ||
        echo "elf: the native part is not there (above): lines are read by DuckDB alone, which is slower" >&2
}

locked() { # what builds packages first, so that nothing else is fetched for that
    pip --require-hashes -r deploy/build.lock &&
        pip --require-hashes --no-build-isolation -r deploy/requirements.lock &&
        pip --no-deps --no-build-isolation --editable .
}

compiler
said=$(locked 2>&1) && { native; exit 0; }
printf '%s\n' "$said" | cut -c 1-300 >&2
case "$said" in
*"HASHES"*) exit 1 ;;
*"No matching distribution found"*) [ "${LOCKED:-}" != only ] || exit 1 ;;
*) exit 1 ;;
esac
echo "elf: the package index lacks a locked version (above); other versions are installed, unchecked" >&2
pip --editable '.[spark,dev]'
native
