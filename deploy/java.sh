#!/bin/sh
# Makes sure that there is a Java that Spark runs on (17 or newer): JAVA_HOME, java on the PATH, or one that is
# installed but on no path. If there is none, installs the distribution's headless JRE where it may (root and
# apt-get), else stops with one line that names the package. Prints nothing when all is well.
set -eu

release() { # the feature release of a java: 17 for 17.0.15, 8 for 1.8.0, nothing when it can't be run
    "$1" -version 2>&1 | sed -n 's/.*version "\(1\.\)\{0,1\}\([0-9][0-9]*\).*/\2/p' | head -n 1
}

found() {
    for java in "${JAVA_HOME:+$JAVA_HOME/bin/java}" "$(command -v java || true)" /usr/lib/jvm/*/bin/java; do
        [ -x "$java" ] || continue
        number=$(release "$java")
        [ "${number:-0}" -ge 17 ] && return 0
    done
    return 1
}

found && exit 0

if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "Spark needs Java 17 or newer: installing the distribution's headless JRE" >&2
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    export DEBIAN_FRONTEND=noninteractive
    for package in default-jre-headless openjdk-17-jre-headless; do
        if { apt-get update && apt-get install -y --no-install-recommends "$package"; } >"$log" 2>&1 && found; then
            exit 0
        fi
        tail -n 5 "$log" >&2
    done
fi
echo "Spark needs Java 17 or newer: install the package default-jre-headless (or openjdk-17-jre-headless), or set JAVA_HOME" >&2
exit 1
