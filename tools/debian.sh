#!/usr/bin/env bash
# Builds and unit-tests the tree on another Debian release, in a chroot that mmdebstrap makes once and keeps outside of
# the tree. The tree is mounted into it read-only; the mounts live in a mount namespace of their own and vanish with it.
#   tools/debian.sh RELEASE PRESET [ctest arguments...]          RELEASE: 12, 13
# The mirror and apt's transport options are those of this machine.
set -euo pipefail
cd "$(dirname "$0")/.."

release=${1:?release} preset=${2:?preset}
shift 2
case "$release" in
  12 | bookworm) release=12 suite=bookworm ;;
  13 | trixie) release=13 suite=trixie ;;
  *) echo "tools/dev test --debian: 12 or 13, not '$release'" >&2; exit 2 ;;
esac

tools/install.sh chroot
cache=${XDG_CACHE_HOME:-$HOME/.cache}/posthouse
root=$cache/debian-$release
as_root=()
if [ "$(id -u)" != 0 ]; then
  echo "A chroot needs root: using sudo." >&2
  as_root=(sudo)
fi

# The Debian mirror that this machine uses; the security archive is of another kind.
mirror=$(apt-get indextargets --format '$(SITE) $(ORIGIN) $(RELEASE)' 'Created-By: Packages' |
  awk '$2 == "Debian" && $3 !~ /security/ { print $1; exit }')
if [ -z "$mirror" ]; then
  echo "apt on this machine knows no Debian mirror (apt-get update?)" >&2
  exit 1
fi
options=()
while read -r key value; do
  options+=(--aptopt="$key $value")
done < <(apt-config dump | grep -E '^Acquire::(Check-Valid-Until|Check-Date|[a-z]+::Proxy) ' || true)

if [ ! -e "$root/.ready" ]; then
  echo "Making a Debian $release chroot in $root (about 400 MB at first, some minutes)." >&2
  mkdir -p "$cache"
  "${as_root[@]}" rm -rf --one-file-system "$root.new"
  "${as_root[@]}" mmdebstrap --mode=root --variant=apt --format=directory "${options[@]}" \
    --include=ca-certificates "$suite" "$root.new" "$mirror" >&2
  "${as_root[@]}" mkdir -p "$root.new/src" "$root.new/build" "$root.new/ccache"
  "${as_root[@]}" touch "$root.new/.ready"
  "${as_root[@]}" mv "$root.new" "$root"
fi

inside='
set -e
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root CCACHE_DIR=/ccache CCACHE_BASEDIR=/src LC_ALL=C.UTF-8
tools/install.sh build test
cd /src
echo "--- Debian $(cat /etc/debian_version): $(g++ --version | head -1), Boost $(dpkg-query -W -f="\${Version}" "libboost1*-dev" 2>/dev/null | head -1), mbedTLS $(dpkg-query -W -f="\${Version}" libmbedtls-dev)"
cmake --preset "$preset" -B "/build/$preset" >/build/configure.log 2>&1 || { cat /build/configure.log; exit 1; }
cmake --build "/build/$preset" -j "$jobs" ${keep_going:+-- -k 0}
exec ctest --test-dir "/build/$preset" --output-on-failure "$@"
'
outside='
set -e
root=$1; shift
mount --make-rprivate /
mount --bind . "$root/src"
mount -o remount,bind,ro "$root/src"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmp "$root/tmp"
cp /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null || true
exec chroot "$root" /bin/sh -c "cd /src; $INSIDE" sh "$@"
'
exec "${as_root[@]}" env INSIDE="$inside" preset="$preset" jobs="${PH_JOBS:-$(nproc)}" keep_going="${PH_KEEP_GOING:-}" \
  unshare --mount --fork --pid --kill-child -- /bin/sh -c "$outside" sh "$root" "$@"
