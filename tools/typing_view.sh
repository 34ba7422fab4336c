#!/bin/sh
# Builds typing_view/splashdam: symlinks that show mypy, pyright and import-linter the rooms as one
# package. The rooms themselves install through the mapping in pyproject.toml; nothing runs from here.
set -eu
cd "$(dirname "$0")/.."
mkdir -p typing_view/splashdam
for room in accumulator cli client embedded_broker model net pipeline record sender testing wire; do
  ln -sfn "../../$room" "typing_view/splashdam/$room"
done
for file in facade/*; do
  case "$file" in *__pycache__*) ;; *) ln -sfn "../../$file" "typing_view/splashdam/$(basename "$file")" ;; esac
done
