#!/bin/sh
# Make one virtual environment per peer library, then write the benchmark's arrays.
#
#   sh benchmarks/peers/setup.sh [bmi sbi torch_mist latentmi mist_statinf neuralmi]
#
# NeuralMI is not on the package index. Clone github.com/eslam-abdelaleem/NeuralMI at release 1.0.0
# outside this repository and give its folder as NEURALMI_CHECKOUT; without it, it is left out.
set -eu
cd "$(dirname "$0")"
for peer in ${*:-bmi sbi torch_mist latentmi mist_statinf neuralmi}; do
    if [ "$peer" = neuralmi ] && [ -z "${NEURALMI_CHECKOUT:-}" ]; then
        echo "neuralmi is left out: set NEURALMI_CHECKOUT to a checkout of its release 1.0.0" >&2
        continue
    fi
    python3 -m venv "envs/$peer"
    # The constraint is the CPU build of torch, the one the library itself is measured with.
    "envs/$peer/bin/pip" install -c ../../constraints.txt -r "requirements/$peer.txt"
    if [ "$peer" = neuralmi ]; then
        "envs/$peer/bin/pip" install --no-deps "$NEURALMI_CHECKOUT"
    fi
done
test -e data/tasks.json || envs/bmi/bin/python export_bmi.py
