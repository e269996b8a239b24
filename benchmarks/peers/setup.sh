#!/bin/sh
# Make one virtual environment per peer library, then write the benchmark's arrays.
#
#   sh benchmarks/peers/setup.sh [bmi sbi mist latentmi]
set -eu
cd "$(dirname "$0")"
for peer in ${*:-bmi sbi mist latentmi}; do
    python3 -m venv "envs/$peer"
    # The constraint is the CPU build of torch, the one the library itself is measured with.
    "envs/$peer/bin/pip" install -c ../../constraints.txt -r "requirements/$peer.txt"
done
test -e data/tasks.json || envs/bmi/bin/python export_bmi.py
