unused_folders() {
  local folder other
  for folder in "$futhark" "$machine" "$wheels" "$nix" "$clang" "$chromium" "$venv" ${overlays[@]+"${overlays[@]}"}; do
    for other in "${folder%-*}"-*; do
      if [[ -n $folder && -d $other && $other != "$folder" ]]; then
        printf '%s\n' "$other"
      fi
    done
  done
}

remove_unused() {
  local unused folder file
  find "$home" -maxdepth 1 -name 'environment-*' ! -name "environment-$key*" -delete
  mapfile -t unused < <(unused_folders)
  ((${#unused[@]})) || return 0
  for folder in "${unused[@]}"; do
    for file in "$home"/environment-*; do
      [[ ! -e $file ]] || ! grep -qF -- "$(printf %q "$folder")" "$file" || rm "$file"
    done
  done
  stage "removing an earlier toolchain" rm -rf "${unused[@]}"
}
