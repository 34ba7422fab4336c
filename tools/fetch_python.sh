#!/bin/sh
# usage: [DEBIAN_MIRROR=URL] tools/fetch_python.sh CACHE VERSION  -> prints the path of Debian unstable's Python VERSION (3.14)
# Fetches an interpreter that is newer than the system: its packages, their libraries and their libc are unpacked into
# CACHE/VERSION, and nothing is installed. Needs apt (Debian, Ubuntu). `PYTHON=$(tools/fetch_python.sh …) make test`
# then uses it.
set -eu
version=$2
mkdir -p "$1"
cache=$(cd "$1" && pwd)
home=$cache/$version
python=$home/usr/bin/python$version
if [ -x "$python" ]; then
    echo "$python"
    exit
fi
mirror=${DEBIAN_MIRROR:-$(apt-get indextargets --format '$(ORIGIN) $(LABEL) $(SITE)' | sed -n 's/^Debian Debian //p' | head -n 1)}
if [ -z "$mirror" ]; then
    echo "no Debian mirror is known here: run apt-get update on Debian, or name one with DEBIAN_MIRROR=URL" >&2
    exit 1
fi
part=$(mktemp -d "$cache/.fetching.XXXXXX")
trap 'rm -rf "$part"' EXIT

# An apt with an empty list of installed packages, so that it downloads every library that the interpreter needs.
apt=$part/apt
mkdir -p "$apt/lists/partial" "$apt/archives/partial"
: > "$apt/status"
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb [signed-by=$keyring] $mirror sid main" > "$apt/sources.list"
cat > "$apt/apt.conf" << END
Dir::State "$apt"; Dir::State::status "$apt/status"; Dir::Cache "$apt";
Dir::Etc::sourcelist "$apt/sources.list"; Dir::Etc::sourceparts "-"; APT::Sandbox::User "";
END
export APT_CONFIG="$apt/apt.conf"
echo "fetching Python $version of Debian unstable …" >&2
apt-get update -qq >&2
apt-get install -qq --download-only --no-install-recommends --yes \
    "python$version" "python$version-dev" "python$version-venv" >&2
root=$part/root
mkdir -p "$root/lib" "$root/lib64"
for package in "$apt"/archives/*.deb; do
    case ${package##*/} in
    libc6-dev_* | libc-dev-bin_* | linux-libc-dev_* | libcrypt-dev_*) ;; # the system's compiler keeps the system's headers
    *) dpkg-deb --fsys-tarfile "$package" | tar --extract --no-same-owner --keep-directory-symlink --directory "$root" ;;
    esac
done

# The program starts through its own loader, which finds its own libc; its child processes have the system's libc.
loader=$(cd "$root" && find . \( -name 'ld-linux*.so.*' -o -name 'ld-musl*' \) \( -type f -o -type l \) -path '*linux-gnu*' | head -n 1)
libraries=$(cd "$root" && find . -name 'libc.so.6' -o -name 'libexpat.so.1' | xargs -n 1 dirname | sort -u | sed "s|^\.|$home|" | paste -s -d :)
mv "$root/usr/bin/python$version" "$root/usr/bin/python$version.program"
cat > "$root/usr/bin/python$version" << END
#!/bin/sh
exec '$home/$loader' --library-path '$libraries' --argv0 "\$0" '$home/usr/bin/python$version.program' "\$@"
END
chmod 755 "$root/usr/bin/python$version"

# Replace the absolute paths in Debian's files.
triplet=$(ls "$root/usr/include" | grep linux-gnu | head -n 1)
ln -sf "../$triplet/python$version/pyconfig.h" "$root/usr/include/python$version/pyconfig.h"
sed -i "s|/usr/share/python-wheels|$home/usr/share/python-wheels|" "$root/usr/lib/python$version"/_sysconfigdata_*.py
rm -rf "$home"
mv "$root" "$home"
"$python" -c ''
echo "$python"
