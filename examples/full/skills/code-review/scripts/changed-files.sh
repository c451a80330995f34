#!/bin/sh
# The files that differ from where this branch began; without another branch, from the last commit.
set -eu
start=$(git merge-base HEAD "${1:-main}" 2>/dev/null || git rev-parse HEAD~1)
git diff --stat "$start"
