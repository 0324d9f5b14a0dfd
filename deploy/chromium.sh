#!/bin/sh
# Makes sure that there is a Chromium, in which tests open pages (lab/chromium.py). If there is none,
# installs the distribution's where it may (root and apt-get). Without one those tests are skipped, which is said.
set -eu

found() {
    for name in chromium chromium-browser google-chrome; do
        command -v "$name" >/dev/null 2>&1 && return 0
    done
    return 1
}

found && exit 0

if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    export DEBIAN_FRONTEND=noninteractive
    if { apt-get update && apt-get install -y --no-install-recommends chromium; } >"$log" 2>&1 && found; then
        exit 0
    fi
    tail -n 5 "$log" >&2
fi
echo "there is no Chromium: tests that open pages are skipped (install the package chromium)" >&2
