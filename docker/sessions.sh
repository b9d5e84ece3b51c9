#!/bin/sh
# Runs nox sessions inside a container: sessions.sh FOLDER WORD..., the words as nox takes them after --session.
# FOLDER holds the environments made in this image, which are made again when the requirements change.
set -eu
folder=$1
shift
python=
for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
    if "$candidate" -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    echo "error: this image has no Python 3.11 or newer with venv: take another with --image." >&2
    exit 1
fi
pinned=$(sha256sum requirements.txt | cut -c1-16)
if [ "$(cat "$folder/pinned" 2>/dev/null)" != "$pinned" ]; then
    rm -rf "$folder/nox" "$folder/environments"
    "$python" -m venv "$folder/nox"
    # the requirements as constraints: their hashes count
    "$folder/nox/bin/python" -m pip install --quiet --constraint requirements.txt nox
    echo "$pinned" >"$folder/pinned"
fi
exec "$folder/nox/bin/nox" --envdir "$folder/environments" --non-interactive --session "$@"
