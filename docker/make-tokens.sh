#!/bin/sh
# Make the secrets of docker/compose.yaml: tokens of the facade, the password of Grafana's admin.
#   docker/make-tokens.sh FOLDER
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
cat > tokens.json <<JSON
[{"name": "app", "sha256": "$(digest app-token)", "read": [""], "write": [""]},
 {"name": "metrics", "sha256": "$(digest metrics-token)"}]
JSON
chmod 644 tokens.json metrics-token grafana-password
echo "$folder: app-token (yours), tokens.json, metrics-token, grafana-password"
