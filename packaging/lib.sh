# shellcheck shell=bash
# Read by the scripts beside this file: each step is said, done at most once, and with --dry-run only said.

DRY_RUN=no
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '%s\n' "$*"; }

fail() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# A missing condition ends the script, or is only said when nothing is done anyway.
unmet() {
    if [ "$DRY_RUN" = yes ]; then say "missing: $*"; else fail "$*"; fi
}

run() {
    if [ "$DRY_RUN" = yes ]; then
        printf '+'
        printf ' %q' "$@"
        printf '\n'
    else
        "$@"
    fi
}

as_root() {
    if [ "$(id -u)" = 0 ]; then run "$@"; else run sudo "$@"; fi
}

# write_file FILE < text: whole or not at all; an equal file is left alone.
write_file() {
    local file=$1 text
    text=$(cat)
    if [ -f "$file" ] && [ "$(cat "$file")" = "$text" ]; then
        say "$file: unchanged"
    elif [ "$DRY_RUN" = yes ]; then
        say "+ write $file"
    else
        mkdir -p "$(dirname "$file")"
        printf '%s\n' "$text" >"$file.part"
        mv "$file.part" "$file"
        say "$file: written"
    fi
}

remove_file() {
    if [ -e "$1" ] || [ -L "$1" ]; then run rm "$1"; else say "$1: not there"; fi
}

# The program that setup made, or the one on PATH.
program() {
    if [ -x "$ROOT/.venv/bin/edge-specquant" ]; then
        printf '%s\n' "$ROOT/.venv/bin/edge-specquant"
    else
        command -v edge-specquant || printf '%s\n' "$ROOT/.venv/bin/edge-specquant"
    fi
}

memory_gb() {
    awk '/^MemTotal:/ { printf "%d\n", ($2 + 524288) / 1048576 }' /proc/meminfo
}

# usage SCRIPT: the comment at the head of a script is its help.
usage() { sed -n '2,/^$/s/^# \{0,1\}//p' "$1"; }
