#!/bin/sh
# Make a base image for docker/Dockerfile where no registry of images can be reached: Debian's own packages only.
#   docker/make-base.sh NAME [SUITE]        needs root, debootstrap and a Docker daemon
# Authorities that this machine trusts beside Debian's (/usr/local/share/ca-certificates) are trusted in the image,
# too, so that pip and Ivy work in a build where they work here.
set -eu

name=$1
suite=${2:-bookworm}
extra=/usr/local/share/ca-certificates
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates "$suite" "$folder" >&2
if [ -n "$(ls -A $extra 2>/dev/null)" ]; then
  cp $extra/*.crt "$folder$extra/"
  env -u TMPDIR chroot "$folder" update-ca-certificates >&2
fi
rm -rf "$folder"/var/cache/apt/archives/*.deb "$folder"/var/lib/apt/lists/*
tar -C "$folder" -c . | docker import --change 'ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt' - "$name"
