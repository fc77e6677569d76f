#!/bin/sh
# From a bare Debian or Ubuntu to the command perflib: the one list of lines that all images are
# made by (Containerfile, perflib.def, the devcontainer). tests/bare runs it in a bare system.
#   sh bare.sh SOURCE    as root; SOURCE is a checkout and the extras: '/usr/src/perflib[report]'
set -eu
export DEBIAN_FRONTEND=noninteractive
apt-get update
apt-get install -y --no-install-recommends gcc libc6-dev make python3-venv
rm -rf /var/lib/apt/lists/*
python3 -m venv /opt/perflib
/opt/perflib/bin/python -m pip install --no-cache-dir "$1"
ln -s /opt/perflib/bin/perflib /usr/local/bin/perflib
