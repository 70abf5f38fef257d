#!/usr/bin/env bash
# Sets up an Arm board (Raspberry Pi 5, RK3588, Ampere ...): looks at instruction sets, heat and memory, builds, answers.
#
#   packaging/arm/setup.sh [--dry-run] [--kleidiai] [--performance] [--service]
#
#   --dry-run      say every step and do none
#   --kleidiai     build with Arm's KleidiAI kernels (their source is fetched during the build)
#   --performance  set the cpufreq governor to "performance" until the next start (asks for root)
#   --service      also install the systemd service (packaging/service)

set -euo pipefail
# shellcheck source=packaging/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

kleidiai=no performance=no service=no
for argument in "$@"; do
    case $argument in
        --dry-run) DRY_RUN=yes ;;
        --kleidiai) kleidiai=yes ;;
        --performance) performance=yes ;;
        --service) service=yes ;;
        -h | --help) usage "${BASH_SOURCE[0]}"; exit 0 ;;
        *) fail "there is no option '$argument'; see --help" ;;
    esac
done

case $(uname -m) in
    aarch64 | arm64) ;;
    armv7l | armv6l) unmet "this system is 32-bit; install the 64-bit one, the engine is several times faster there" ;;
    *) unmet "this machine is $(uname -m), no Arm board; use packaging/cpu" ;;
esac
if [ -r /proc/device-tree/model ]; then say "board: $(tr -d '\0' </proc/device-tree/model)"; fi
say "memory: $(memory_gb) GB"
for feature in asimddp i8mm sve; do
    if grep -qw "$feature" /proc/cpuinfo; then say "$feature: yes"; else say "$feature: no"; fi
done
if command -v vcgencmd >/dev/null; then
    say "throttling since start: $(vcgencmd get_throttled) (0x0 is none; anything else: cooler or power supply)"
fi

if [ "$performance" = yes ]; then
    for governor in /sys/devices/system/cpu/cpufreq/policy*/scaling_governor; do
        if [ -e "$governor" ]; then as_root sh -c "echo performance >'$governor'"; fi
    done
fi

# The compiler finds dotprod and i8mm by itself (GGML_NATIVE=ON); KleidiAI must be asked for.
if [ "$kleidiai" = yes ]; then
    run env CMAKE_ARGS="${CMAKE_ARGS:+$CMAKE_ARGS }-DGGML_CPU_KLEIDIAI=ON" "$ROOT/scripts/quickstart"
else
    run "$ROOT/scripts/quickstart"
fi
run "$(program)" doctor
if [ "$service" = yes ]; then
    if [ "$DRY_RUN" = yes ]; then set -- --dry-run; else set --; fi
    "$ROOT/packaging/service/install.sh" "$@"
fi
