#!/usr/bin/env bash
# Sets up a Jetson (JetPack 5, 6 or 7): checks CUDA, makes swap, builds with the board's architecture, sizes the context.
#
#   packaging/jetson/setup.sh [--dry-run] [--swap GB] [--power-mode N] [--service]
#   packaging/jetson/setup.sh --undo [--dry-run]
#
#   --dry-run       say every step and do none
#   --swap GB       make and mount a swap file of so many gigabytes (asks for root)
#   --power-mode N  switch nvpmodel to mode N (asks for root; without it the modes are listed)
#   --service       also install the systemd service (packaging/service)
#   --undo          take away the swap file and the settings made here

set -euo pipefail
# shellcheck source=packaging/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

readonly SWAP_FILE=/edge-specquant.swap FSTAB=/etc/fstab
swap_gb='' power_mode='' service=no undo=no
while [ $# -gt 0 ]; do
    case $1 in
        --dry-run) DRY_RUN=yes ;;
        --swap) swap_gb=${2:?--swap needs a number of gigabytes}; shift ;;
        --power-mode) power_mode=${2:?--power-mode needs a number}; shift ;;
        --service) service=yes ;;
        --undo) undo=yes ;;
        -h | --help) usage "${BASH_SOURCE[0]}"; exit 0 ;;
        *) fail "there is no option '$1'; see --help" ;;
    esac
    shift
done
case $swap_gb$power_mode in *[!0-9]*) fail "--swap and --power-mode take whole numbers" ;; esac

take_back() {
    local key
    if [ -e "$SWAP_FILE" ]; then
        as_root swapoff "$SWAP_FILE" || say "note: $SWAP_FILE was not in use"
        as_root sed -i "\\|^$SWAP_FILE |d" "$FSTAB"
        as_root rm "$SWAP_FILE"
    else
        say "$SWAP_FILE: not there"
    fi
    if [ ! -x "$(program)" ]; then
        say "$(program): not there; its settings, if any, stay"
        return
    fi
    for key in n_gpu_layers n_ctx n_batch; do
        run "$(program)" config unset "engine.$key"
    done
}

check_board() {
    if [ -r /etc/nv_tegra_release ]; then
        say "board: $(tr -d '\0' </proc/device-tree/model 2>/dev/null || printf unknown)"
        case $(sed -n '1s/^# R\([0-9]*\).*/\1/p' /etc/nv_tegra_release) in
            35) say "system: JetPack 5" ;;
            36) say "system: JetPack 6" ;;
            38) say "system: JetPack 7" ;;
            *) say "note: none of JetPack 5, 6 and 7; going on" ;;
        esac
    else
        unmet "this is no Jetson (no /etc/nv_tegra_release); use packaging/cpu or packaging/arm"
    fi
    if ! command -v nvcc >/dev/null && [ ! -x /usr/local/cuda/bin/nvcc ]; then
        unmet "there is no nvcc; run: sudo apt install nvidia-jetpack"
    fi
    has_python || unmet "there is no Python 3.10 to 3.13 (JetPack 5 has 3.8); install one and run this again"
}

# scripts/quickstart takes the newest of these by itself.
has_python() {
    local minor
    for minor in 13 12 11 10; do
        if command -v "python3.$minor" >/dev/null; then return 0; fi
    done
    return 1
}

make_swap() {
    if grep -q "^$SWAP_FILE " /proc/swaps; then
        say "$SWAP_FILE: in use"
        return
    fi
    as_root fallocate -l "${swap_gb}G" "$SWAP_FILE"
    as_root chmod 600 "$SWAP_FILE"
    as_root mkswap "$SWAP_FILE"
    as_root swapon "$SWAP_FILE"
    as_root sh -c "grep -q '^$SWAP_FILE ' $FSTAB || echo '$SWAP_FILE none swap sw 0 0' >>$FSTAB"
}

# CPU and GPU share one memory: what the context takes, the weights cannot have.
size_context() {
    local gb n_ctx n_batch
    gb=$(memory_gb)
    if [ "$gb" -le 9 ]; then n_ctx=2048 n_batch=256; elif [ "$gb" -le 17 ]; then n_ctx=4096 n_batch=512; else n_ctx=''; fi
    say "memory: $gb GB, shared by CPU and GPU"
    run "$(program)" config set engine.n_gpu_layers 999
    if [ -n "$n_ctx" ]; then
        run "$(program)" config set engine.n_ctx "$n_ctx"
        run "$(program)" config set engine.n_batch "$n_batch"
    fi
}

if [ "$undo" = yes ]; then
    take_back
    exit 0
fi
check_board
if [ -n "$swap_gb" ]; then
    make_swap
elif [ "$(memory_gb)" -le 9 ] && ! grep -qv -e '^Filename' -e zram /proc/swaps; then
    say "note: no swap on disk; the build of the CUDA files may run out of memory (--swap 8 makes some)"
fi
if [ -n "$power_mode" ]; then
    as_root nvpmodel -m "$power_mode"
elif [ -r /etc/nvpmodel.conf ]; then
    say "power modes (--power-mode N):"
    sed -n 's/^< POWER_MODEL ID=\([0-9]*\) NAME=\([^ ]*\) >/  \1 \2/p' /etc/nvpmodel.conf
fi
run "$ROOT/scripts/quickstart"
size_context
run "$(program)" doctor
if [ "$service" = yes ]; then
    if [ "$DRY_RUN" = yes ]; then set -- --dry-run; else set --; fi
    "$ROOT/packaging/service/install.sh" "$@"
fi
