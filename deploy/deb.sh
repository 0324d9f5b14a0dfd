#!/bin/sh
# Builds a package for Debian and its kin:  sh deploy/deb.sh [FOLDER]     (dist otherwise; `make deb`)
# It has elf and all that it depends on, as deploy/runtime.lock says by version and hash, in a Python
# environment of its own in /usr/lib/elf. That is of the Python 3 of this system (PYTHON names another), so a
# package is for the release that it was built on. REVISION=2: another build of the same version.
# EXTRAS=kafka,postgres: with what these need, in the versions that the package index has.
set -eu
umask 022

out=$(mkdir -p "${1:-dist}" && cd "${1:-dist}" && pwd)
cd "$(dirname "$0")/.."
python=${PYTHON:-/usr/bin/python3}
fail() { echo "deb.sh: $*" >&2 && exit 1; }

command -v dpkg-deb >/dev/null || fail "there is no dpkg-deb: build on Debian or its kin"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "$python is older than Python 3.11"
build=$(mktemp -d) && trap 'rm -rf "$build"' EXIT
root=$build/root home=$build/root/usr/lib/elf

# what builds, in an environment that ends with this script
"$python" -m venv "$build/tools" || fail "$python has no venv: install python3-venv"
pip() { "$build/tools/bin/python" -m pip --quiet --disable-pip-version-check "$@"; }
pip install --require-hashes -r deploy/build.lock
mkdir "$build/source"
cp -R pyproject.toml README.md LICENSE elf overlay agents spark_backend lab "$build/source"
pip wheel --no-deps --no-build-isolation --wheel-dir "$build" "$build/source"
wheel=$(echo "$build"/elf_stream-*.whl)

# the environment: no pip in it, and no laboratory
"$python" -m venv --without-pip "$home"
into() { pip --python "$home/bin/python" install --no-compile "$@"; }
into --require-hashes -r deploy/runtime.lock
into --no-deps "$wheel"
if [ -n "${EXTRAS:-}" ]; then into "$wheel[$EXTRAS]"; fi
packages=$("$home/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
"$home/bin/python" -c 'import sys; from elf import native; sys.exit(native.why_not() or 0)' ||
    fail "the native part was not built (above): install a C compiler"
rm -r "$packages/lab"
for each in "$home"/bin/*; do
    case "${each##*/}" in elf | elf-agent | python*) ;; *) rm "$each" ;; esac
done
sed -i "s|$root||g" "$home/bin/elf" "$home/bin/elf-agent" "$home/pyvenv.cfg"
find "$home" -name __pycache__ -prune -exec rm -r {} +
"$python" -m compileall -q -j 0 --invalidation-mode unchecked-hash -s "$root" -p / "$packages" >/dev/null

# beside it
mkdir -p "$root/DEBIAN" "$root/usr/bin" "$root/etc/default" "$root/lib/systemd/system" "$root/etc/elf"
ln -s ../lib/elf/bin/elf "$root/usr/bin/elf"
ln -s ../lib/elf/bin/elf-agent "$root/usr/bin/elf-agent"
cp deploy/systemd/elf-agent.service "$root/lib/systemd/system/"
cp deploy/debian/elf-agent.default "$root/etc/default/elf-agent"
doc=$root/usr/share/doc/elf-stream && mkdir -p "$doc"
cp -RL docs/*.md CHANGELOG.md deploy/elf.example.yaml deploy/nginx deploy/prometheus deploy/logrotate deploy/queries "$doc"
cp LICENSE "$doc/copyright"
find "$root" -type d -exec chmod 755 {} + && chmod -R u+rwX,go+rX,go-w "$root"
chmod 600 "$root/etc/default/elf-agent" # it may have a token

version=$("$home/bin/python" -c 'from elf import __version__; print(__version__)')
set -- $("$python" -c 'import sys; print("%d.%d %d.%d" % (*sys.version_info[:2], 3, sys.version_info[1] + 1))')
architecture=$(dpkg --print-architecture)
sed "s/@VERSION@/$version-${REVISION:-1}/; s/@ARCHITECTURE@/$architecture/; s/@PYTHON@/$1/; s/@NEXT_PYTHON@/$2/" \
    deploy/debian/control >"$root/DEBIAN/control"
echo "Installed-Size: $(du -sk --exclude DEBIAN "$root" | cut -f 1)" >>"$root/DEBIAN/control"
cp deploy/debian/conffiles "$root/DEBIAN/"
for each in postinst prerm postrm; do install -m 755 "deploy/debian/$each" "$root/DEBIAN/$each"; done
package=$out/elf-stream_$version-${REVISION:-1}_$architecture.deb
dpkg-deb --root-owner-group -Zzstd --build "$root" "$package" >/dev/null
echo "$package"
