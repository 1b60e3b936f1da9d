#!/usr/bin/env bash
# Installs the Debian packages that building, testing and linting posthouse need, when they are missing. Works on Debian 12
# and 13, as root or through sudo; asks dpkg first, so that it costs a tenth of a second when there is nothing to do.
#   tools/install.sh [build] [test] [lint] [fuzz] [chroot]      (nothing named: all of them)
set -euo pipefail

say() { printf '\n\033[1m%s\033[0m\n' "$*" >&2; }

. /etc/os-release
case "${VERSION_ID:-13}" in
  12) boost=libboost1.81-dev ;;
  13) boost=libboost1.83-dev ;;
  *) boost=libboost-dev ;;
esac

build=(g++ cmake ninja-build pkg-config ccache mold "$boost" libmbedtls-dev libleveldb-dev libsnappy-dev
  libtomlplusplus-dev libsystemd-dev libfmt-dev libspdlog-dev libcli11-dev libzstd-dev zlib1g-dev libgtest-dev
  libgmock-dev libbenchmark-dev)
test=(python3 python3-pytest python3-paho-mqtt mosquitto mosquitto-clients procps strace)
demo=(python3 mosquitto-clients procps)
lint=(python3 clang-format-19 clang-tidy-19)
fuzz=(clang-19 libclang-rt-19-dev llvm-19)
chroot=(mmdebstrap debian-archive-keyring)

sets=("$@")
[ ${#sets[@]} -gt 0 ] || sets=(build test demo lint fuzz chroot)
wanted=()
for set in "${sets[@]}"; do
  case "$set" in
    build | test | demo | lint | fuzz | chroot) declare -n of="$set"; wanted+=("${of[@]}"); unset -n of ;;
    *) echo "tools/install.sh: no such set: $set (build test demo lint fuzz chroot)" >&2; exit 2 ;;
  esac
done

if ! command -v dpkg-query >/dev/null; then
  echo "This is not Debian; the packages to install by its own means are like Debian's: ${wanted[*]}" >&2
  exit 1
fi

missing_now() {
  comm -13 <(dpkg-query -W -f='${binary:Package} ${db:Status-Status}\n' 2>/dev/null |
    awk '$2 == "installed" { sub(/:.*/, "", $1); print $1 }' | sort -u) <(printf '%s\n' "${wanted[@]}" | sort -u)
}
mapfile -t missing < <(missing_now)
[ ${#missing[@]} -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" != 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "Missing packages, and neither root nor sudo: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
  say "These packages are missing and will be installed with sudo (it may ask for your password):"
else
  say "These packages are missing and will be installed:"
fi
echo "  ${missing[*]}" >&2

apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Dpkg::Use-Pty=0 -o Acquire::Retries=3)
install() { "${apt[@]}" install --no-install-recommends "${missing[@]}" >&2; }
known() { apt-cache show "${missing[@]}" >/dev/null 2>&1; }
if ! known || ! install; then
  "${apt[@]}" update >&2
  install
fi
