#!/bin/sh
# Make the secrets of docker/compose.yaml: tokens of the facade, the password of Grafana's admin.
#   docker/make-tokens.sh FOLDER
# What is there already is left as it is.
# The facade is given digests only. Containers run as other users than you, so what is mounted into one must be
# readable to all; the folder itself is yours alone.
set -eu

folder=${1:?name a folder}
mkdir -p "$folder"
chmod 700 "$folder"
cd "$folder"
token() { od -An -N32 -tx1 /dev/urandom | tr -d ' \n'; }
digest() { tr -d '\n' < "$1" | sha256sum | cut -d' ' -f1; }
for name in app-token metrics-token grafana-password; do
  [ -s "$name" ] || token > "$name"
done
chmod 600 app-token
entry() { printf '{"name": "%s", "sha256": "%s"%s}' "$1" "$(digest "$1-token")" "$2"; }
app=$(entry app ', "read": [""], "write": [""]')
metrics=$(entry metrics '')
lacked=0
lack() {
  grep -q "$(digest "$1-token")" tokens.json && return
  echo "$folder/tokens.json lacks $1-token: add $2" >&2
  lacked=1
}
if [ -s tokens.json ]; then  # with tokens that were added since
  lack app "$app"
  lack metrics "$metrics"
else
  printf '[%s,\n %s]\n' "$app" "$metrics" > tokens.json
fi
chmod 644 tokens.json metrics-token grafana-password
echo "$folder: app-token (yours), tokens.json, metrics-token, grafana-password"
exit $lacked
