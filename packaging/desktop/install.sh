#!/usr/bin/env bash
# Puts the program on PATH, with a launcher entry, icon, man page and completions for bash, zsh and fish. No root.
#
#   packaging/desktop/install.sh [--dry-run] [--prefix FOLDER] [--undo]
#
#   --dry-run        say every step and do none
#   --prefix FOLDER  where to (default: ~/.local)
#   --undo           take all of it away again

set -euo pipefail
# shellcheck source=packaging/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

prefix=${HOME:?}/.local undo=no
while [ $# -gt 0 ]; do
    case $1 in
        --dry-run) DRY_RUN=yes ;;
        --prefix) prefix=${2:?--prefix needs a folder}; shift ;;
        --undo) undo=yes ;;
        -h | --help) usage "${BASH_SOURCE[0]}"; exit 0 ;;
        *) fail "there is no option '$1'; see --help" ;;
    esac
    shift
done

here=$ROOT/packaging/desktop
launcher=$prefix/share/applications/edge-specquant.desktop
icon=$prefix/share/icons/hicolor/scalable/apps/edge-specquant.svg
link=$prefix/bin/edge-specquant
man_page=$prefix/share/man/man1/edge-specquant.1
declare -A completion=(
    [bash]=$prefix/share/bash-completion/completions/edge-specquant
    [zsh]=$prefix/share/zsh/site-functions/_edge-specquant
    [fish]=$prefix/share/fish/vendor_completions.d/edge-specquant.fish
)

if [ "$undo" = yes ]; then
    for file in "$launcher" "$icon" "$man_page" "${completion[@]}"; do remove_file "$file"; done
    if [ -L "$link" ]; then run rm "$link"; fi
    exit 0
fi

executable=$(program)
[ -x "$executable" ] || unmet "$executable is not there yet; run scripts/quickstart first"
sed "s|@PROGRAM@|$executable|" "$here/edge-specquant.desktop" | write_file "$launcher"
write_file "$icon" <"$here/edge-specquant.svg"
if [ -e "$link" ] && [ ! -L "$link" ]; then
    say "note: $link is a file of its own and stays"
elif [ "$(readlink -f "$link" || true)" != "$(readlink -f "$executable" || true)" ]; then
    run mkdir -p "$prefix/bin"
    run ln -sfn "$executable" "$link"
fi
for shell in "${!completion[@]}"; do
    if [ -x "$executable" ]; then
        # Made by the program itself: the script asks it for the words at every TAB.
        env "_EDGE_SPECQUANT_COMPLETE=${shell}_source" "$executable" | write_file "${completion[$shell]}"
    else
        say "+ write ${completion[$shell]}"
    fi
done
python=$(dirname "$executable")/python
if [ -x "$python" ]; then
    "$python" "$ROOT/scripts/man-page" | write_file "$man_page"
else
    say "+ write $man_page"
fi
case :$PATH: in *":$prefix/bin:"*) ;; *) say "note: $prefix/bin is not on PATH" ;; esac
