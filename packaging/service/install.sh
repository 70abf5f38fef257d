#!/usr/bin/env bash
# Installs `edge-specquant serve` as a systemd service that starts with the machine and runs as you.
#
#   packaging/service/install.sh [--dry-run] [--family NAME] [--undo]
#
#   --dry-run      say every step and do none
#   --family NAME  the family to serve (default: demo)
#   --undo         stop the service and take its unit away; families and settings stay

set -euo pipefail
# shellcheck source=packaging/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

readonly UNIT=/etc/systemd/system/edge-specquant.service
family=demo undo=no
while [ $# -gt 0 ]; do
    case $1 in
        --dry-run) DRY_RUN=yes ;;
        --family) family=${2:?--family needs a name}; shift ;;
        --undo) undo=yes ;;
        -h | --help) usage "${BASH_SOURCE[0]}"; exit 0 ;;
        *) fail "there is no option '$1'; see --help" ;;
    esac
    shift
done
# The packages belong to who owns the clone, also when this runs under sudo.
as_user() {
    if [ "$user" = "$(id -un)" ]; then run "$@"; else run sudo -u "$user" "$@"; fi
}

case $family in *[!A-Za-z0-9._-]* | '') fail "'$family' is no family name that a unit can hold" ;; esac
command -v systemctl >/dev/null || unmet "there is no systemd here; start '$(program) serve $family' by your own means"

if [ "$undo" = yes ]; then
    if [ -e "$UNIT" ]; then
        as_root systemctl disable --now edge-specquant.service
        as_root rm "$UNIT"
        as_root systemctl daemon-reload
    else
        say "$UNIT: not there"
    fi
    exit 0
fi

executable=$(program)
[ -x "$executable" ] || unmet "$executable is not there yet; run scripts/quickstart first"
case $executable in *[[:space:]\"\'%\$]*) fail "systemd cannot start a program at '$executable': move it to a plain path" ;; esac
user=${SUDO_USER:-$(id -un)}
python=$(dirname "$executable")/python
if ! "$python" -c 'import fastapi, prometheus_client, sse_starlette, uvicorn' 2>/dev/null; then
    say "the server's packages are not there yet"
    as_user "$python" -m pip install --quiet 'edge-specquant[server]'
fi
text=$(sed -e "s|@PROGRAM@|$executable|" -e "s|@FAMILY@|$family|" -e "s|@USER@|$user|" \
    "$ROOT/packaging/service/edge-specquant.service")
# Older systemd (Ubuntu 22.04, JetPack, Debian 12) does not know notify-reload.
version=$(systemctl --version 2>/dev/null | sed -n '1s/^systemd \([0-9]*\).*/\1/p')
if [ "${version:-253}" -lt 253 ]; then
    text=${text/Type=notify-reload/Type=notify$'\n'ExecReload=/bin/kill -HUP \$MAINPID}
fi
if [ -f "$UNIT" ] && [ "$(cat "$UNIT")" = "$text" ]; then
    say "$UNIT: unchanged"
elif [ "$DRY_RUN" = yes ]; then
    say "+ write $UNIT"
    printf '%s\n' "$text"
else
    draft=$(mktemp)
    trap 'rm -f "$draft"' EXIT
    printf '%s\n' "$text" >"$draft"
    as_root install -m 644 "$draft" "$UNIT"
fi
as_root systemctl daemon-reload
as_root systemctl enable --now edge-specquant.service
say "log: journalctl -u edge-specquant; new settings: systemctl reload edge-specquant"
