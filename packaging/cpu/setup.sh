#!/usr/bin/env bash
# Sets up a machine without a GPU: checks the tools, builds the engine for this processor, answers a prompt.
#
#   packaging/cpu/setup.sh [--dry-run] [--install-tools] [--service]
#
#   --dry-run        say every step and do none
#   --install-tools  install compiler and Python headers with apt or dnf (asks for root)
#   --service        also install the systemd service (packaging/service)

set -euo pipefail
# shellcheck source=packaging/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

install_tools=no service=no
for argument in "$@"; do
    case $argument in
        --dry-run) DRY_RUN=yes ;;
        --install-tools) install_tools=yes ;;
        --service) service=yes ;;
        -h | --help) usage "${BASH_SOURCE[0]}"; exit 0 ;;
        *) fail "there is no option '$argument'; see --help" ;;
    esac
done

if [ "$install_tools" = yes ]; then
    if command -v apt-get >/dev/null; then
        as_root apt-get install -y build-essential python3-venv
    elif command -v dnf >/dev/null; then
        as_root dnf install -y gcc-c++ make python3
    else
        unmet "neither apt-get nor dnf is here; install a C++ compiler and Python 3.10 to 3.13 with venv"
    fi
fi
command -v c++ >/dev/null || command -v g++ >/dev/null || command -v clang++ >/dev/null ||
    unmet "there is no C++ compiler; run this again with --install-tools"

say "processor: $(awk -F': ' '/^model name/ { print $2; exit }' /proc/cpuinfo)"
say "memory: $(memory_gb) GB"
case $(uname -m) in
    x86_64) grep -qw avx2 /proc/cpuinfo || say "note: no AVX2 here; the engine is built for the older sets and is slow" ;;
    *) say "note: this is no x86 processor; packaging/arm has advice for Arm boards" ;;
esac

run "$ROOT/scripts/quickstart"
run "$(program)" doctor
if [ "$service" = yes ]; then
    if [ "$DRY_RUN" = yes ]; then set -- --dry-run; else set --; fi
    "$ROOT/packaging/service/install.sh" "$@"
fi
