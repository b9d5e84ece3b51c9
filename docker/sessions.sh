#!/bin/sh
# Run nox sessions inside a container: sessions.sh FOLDER WORD... The words are nox's arguments after --session.
# FOLDER holds the environments of this image, one set for each requirements.txt. One run makes a set while others
# wait. A set that was not finished is made again.
set -eu
python=
for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
    if "$candidate" -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    echo "error: this image has no Python 3.11 or newer with venv: choose another image with --image." >&2
    exit 1
fi
folder=$1/$(sha256sum requirements.txt | cut -c1-16)
shift
in_nox() {
    "$folder/nox/bin/nox" --envdir "$folder/environments" --non-interactive --session "$@"
}
mkdir -p "$folder"
exec 9>"$folder/lock"
if ! flock --nonblock 9; then
    echo "waiting for another run that makes the environments in $folder"
    flock 9
fi
if [ ! -e "$folder/complete" ]; then
    rm -rf "$folder/nox" "$folder/environments"
    "$python" -m venv "$folder/nox"
    # as constraints, requirements.txt also pins the hashes
    "$folder/nox/bin/python" -m pip install --quiet --constraint requirements.txt nox
    in_nox environment
    touch "$folder/complete"
fi
exec 9>&-
in_nox "$@"
