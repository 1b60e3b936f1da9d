#!/usr/bin/env bash
# Installs the Debian packages that building, testing and linting posthouse need, when they are missing. Works on Debian 12
# and 13, as root or through sudo; asks dpkg first, so that it costs a tenth of a second when there is nothing to do.
#   tools/install.sh [build] [test] [interop] [demo] [lint] [fuzz] [chroot]      (nothing named: all of them)
# interop brings MQTT.js, of the versions in tests/interop/package-lock.json, to build/interop.
set -euo pipefail

say() { printf '\n\033[1m%s\033[0m\n' "$*" >&2; }

. /etc/os-release
case "${VERSION_ID:-13}" in
  12) boost=libboost1.81-dev ;;
  13) boost=libboost1.83-dev ;;
  *) boost=libboost-dev ;;
esac

build=(g++ cmake ninja-build pkg-config ccache mold "$boost" libmbedtls-dev libleveldb-dev libsnappy-dev
  libtomlplusplus-dev libsystemd-dev libfmt-dev libspdlog-dev libcli11-dev libzstd-dev zlib1g-dev libre2-dev libgtest-dev
  libgmock-dev libbenchmark-dev)
test=(python3 python3-pytest python3-paho-mqtt mosquitto mosquitto-clients procps strace openssl)
interop=()
command -v npm >/dev/null || interop=(nodejs npm) # whoever has them from elsewhere keeps them
demo=(python3 mosquitto-clients procps)
lint=(python3 clang-format-19 clang-tidy-19)
fuzz=(clang-19 libclang-rt-19-dev llvm-19)
chroot=(mmdebstrap debian-archive-keyring)

sets=("$@")
[ ${#sets[@]} -gt 0 ] || sets=(build test interop demo lint fuzz chroot)
wanted=()
for set in "${sets[@]}"; do
  case "$set" in
    build | test | interop | demo | lint | fuzz | chroot) declare -n of="$set"; wanted+=("${of[@]}"); unset -n of ;;
    *) echo "tools/install.sh: no such set: $set (build test interop demo lint fuzz chroot)" >&2; exit 2 ;;
  esac
done

if ! command -v dpkg-query >/dev/null; then
  echo "This is not Debian; the packages to install by its own means are like Debian's: ${wanted[*]}" >&2
  exit 1
fi

# The MQTT client of Node.js, when it is asked for and not there in this version.
node_modules() {
  [[ " ${sets[*]} " == *" interop "* ]] || return 0
  local from to=build/interop
  from=$(dirname "$(readlink -f "$0")")/../tests/interop
  cmp -s "$from/package-lock.json" "$to/package-lock.json" && [ -d "$to/node_modules/mqtt" ] && return 0
  mkdir -p "$to"
  cp "$from/package.json" "$from/package-lock.json" "$to/"
  if ! npm ci --prefix "$to" --ignore-scripts --no-audit --no-fund >"$to/npm.log" 2>&1; then
    rm -f "$to/package-lock.json"
    echo "MQTT.js cannot be fetched, its tests will be skipped; why is in $to/npm.log" >&2
  fi
}

missing_now() {
  comm -13 <(dpkg-query -W -f='${binary:Package} ${db:Status-Status}\n' 2>/dev/null |
    awk '$2 == "installed" { sub(/:.*/, "", $1); print $1 }' | sort -u) <(printf '%s\n' "${wanted[@]}" | sort -u | sed '/^$/d')
}
mapfile -t missing < <(missing_now)
if [ ${#missing[@]} -eq 0 ]; then
  node_modules
  exit 0
fi

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
node_modules
