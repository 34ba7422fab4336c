#!/bin/sh
# usage: tools/find_python.sh [--here] VERSION  -> prints the path of a Python of that version (3.13, 3.14t)
# Looks on the PATH, among pyenv's versions, and in the cache of fetch_python.sh; else fetches Debian's, unless --here
# is given. A path instead of a version is printed if that Python runs.
set -eu
fetch=yes
if [ "$1" = --here ]; then
    fetch=
    shift
fi
version=$1
cache=$HOME/.cache/splashdam/python

# A pyenv shim may exist without its version: a Python counts only if it runs and has that version and threading.
check='import sys, sysconfig
given, threaded = sys.argv[1], bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
sys.exit(given[:1].isdigit() and given != "%d.%d" % sys.version_info[:2] + "t" * threaded)'
runs() { "$1" -c "$check" "$version" > /dev/null 2>&1; }

case $version in
[0-9]*) set -- "python$version" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"${version%t}".*/bin/python3 "$cache/$version/usr/bin/python$version" ;;
*) set -- "$version" ;;
esac
for python; do
    if runs "$python"; then
        command -v "$python"
        exit
    fi
done
if [ -n "$fetch" ] && [ "$version" != "${version#[0-9]}" ] && command -v apt-get > /dev/null; then
    exec sh "$(dirname "$0")/fetch_python.sh" "$cache" "$version"
fi
echo "no Python $version that runs: looked at $*" >&2
exit 1
