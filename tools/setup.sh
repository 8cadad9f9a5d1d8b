#!/usr/bin/env bash
# Installs what lowtide needs on a fresh machine and puts it into .venv: Debian packages (when we may), a virtual
# environment, PyTorch's CPU build, lowtide itself. Can be run again: what is there is left alone.
#   tools/setup.sh            for `make demo`
#   tools/setup.sh test       also what the tests need
set -euo pipefail
cd "$(dirname "$0")/.."
want="${1:-run}"
venv="${LOWTIDE_VENV:-.venv}"
torch_version="${LOWTIDE_TORCH:-2.13.0}"

say() { printf 'setup: %s\n' "$*" >&2; }

debian_packages() {
  local packages=(g++ make ninja-build cmake ccache pkg-config zlib1g-dev libfmt-dev libcli11-dev libtomlplusplus-dev
                  nlohmann-json3-dev libtree-sitter-dev prometheus-cpp-dev)
  [ "$want" = test ] && packages+=(libgtest-dev iproute2)
  printf '%s\n' "${packages[@]}"
}

missing_packages() {
  local package
  for package in $(debian_packages); do
    # A compiler or CMake from elsewhere does as well as Debian's.
    case "$package" in
      g++ | make | cmake | ccache) command -v "$package" >/dev/null && continue ;;
      ninja-build) command -v ninja >/dev/null && continue ;;
      pkg-config) command -v pkg-config >/dev/null && continue ;;
    esac
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || echo "$package"
  done
}

install_debian() {
  command -v dpkg-query >/dev/null || { say "not a Debian system: install by hand what $(debian_packages | tr '\n' ' ')are called here"; return; }
  local missing
  missing=$(missing_packages | tr '\n' ' ')
  [ -n "$missing" ] || return 0
  local sudo=""
  if [ "$(id -u)" != 0 ]; then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
      sudo=sudo
    else
      say "missing Debian packages, and no right to install them. Ask for: apt-get install $missing"
      exit 1
    fi
  fi
  say "installing $missing"
  $sudo apt-get update -qq || say "apt-get update failed; trying with the lists at hand"
  DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends $missing >/dev/null || {
    say "apt-get could not install: $missing"
    exit 1
  }
}

# The Prometheus server for its test: unpacked beside the tests' Python and not installed, since Debian's package would
# start a service on this machine.
unpack_prometheus() {
  [ "$want" = test ] && ! command -v prometheus >/dev/null && [ ! -x "$venv/bin/prometheus" ] || return 0
  command -v apt-get >/dev/null || return 0
  local folder="$venv/prometheus"
  mkdir -p "$folder"
  (cd "$folder" && apt-get download -qq prometheus >/dev/null 2>&1 && dpkg -x prometheus_*.deb . && rm -f prometheus_*.deb) || {
    say "the Debian package prometheus could not be fetched: the test with a real server will be skipped"
    return 0
  }
  ln -sf ../prometheus/usr/bin/prometheus ../prometheus/usr/bin/promtool "$venv/bin/"
}

make_venv() {
  [ -x "$venv/bin/python" ] && return
  local python="${PYTHON:-python3}"
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || {
    say "$python is older than 3.10; name a newer one with PYTHON=..."
    exit 1
  }
  "$python" -m venv "$venv" || {
    say "$python cannot make a virtual environment: install python3-venv and python3-dev"
    exit 1
  }
}

install_torch() {
  "$venv/bin/python" - "$torch_version" <<'PY' && return
import sys
try:
    import torch, numpy
except ImportError:
    sys.exit(1)
sys.exit(torch.__version__.split("+")[0] != sys.argv[1])
PY
  say "installing torch $torch_version (CPU build) and numpy into $venv"
  "$venv/bin/pip" install -q "torch==$torch_version" numpy || {
    say "pip could not install torch==$torch_version; is the package index reachable?"
    exit 1
  }
}

install_lowtide() {
  say "building lowtide"
  local extra=()
  if [ "$want" = test ]; then
    "$venv/bin/pip" install -q -r tests/requirements.txt
    extra+=(--config-settings=cmake.define.LOWTIDE_TESTS=ON)
  fi
  "$venv/bin/pip" install -q . --force-reinstall --no-deps "${extra[@]}" || {
    say "lowtide did not build; the messages above say why"
    exit 1
  }
}

install_debian
make_venv
unpack_prometheus
install_torch
install_lowtide
