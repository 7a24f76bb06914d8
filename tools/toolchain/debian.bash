debian_archives() {
  if [[ -n ${GLM_DEBIAN_ARCHIVE:-} ]]; then
    printf '%s\n' "$GLM_DEBIAN_ARCHIVE"
    return
  fi
  apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' | awk '
    $3 == "main" && $2 ~ /^(bullseye|bookworm|trixie|forky|sid|oldstable|stable|testing|unstable)$/ && !seen[$1]++ {
      print $1
    }'
}

debian_keyring() {
  local keyring
  for keyring in /usr/share/keyrings/debian-archive-keyring.{pgp,gpg}; do
    if [[ -r $keyring ]]; then
      printf '%s' "$keyring"
      return
    fi
  done
}

debian_obstacle() {
  if ! type -P apt-get >/dev/null || ! type -P dpkg-deb >/dev/null; then
    printf 'apt-get or dpkg-deb is not installed'
  elif [[ -z $(debian_keyring) ]]; then
    printf 'no Debian archive keyring in /usr/share/keyrings (package debian-archive-keyring)'
  elif [[ -z $(debian_archives) ]]; then
    printf 'the apt sources name no Debian archive (set GLM_DEBIAN_ARCHIVE to name one)'
  fi
}

debian_reachable() {
  [[ -z $(debian_obstacle) ]]
}

installing() {
  local word packages=()
  for word; do
    [[ $word == /* ]] || packages+=("$word")
  done
  if type -P apt-get >/dev/null; then
    printf '; as root: apt install %s' "${packages[*]}"
  fi
}

write_apt_configuration() {
  local state=$1
  mkdir -p "$state/lists/partial" "$state/archives/partial"
  : >"$state/status"
  printf '%s\n' \
    "Dir::State \"$state\";" \
    "Dir::State::status \"$state/status\";" \
    "Dir::State::lists \"$state/lists\";" \
    "Dir::Cache \"$state\";" \
    "Dir::Cache::archives \"$state/archives\";" \
    "Dir::Etc::sourcelist \"$state/sources.list\";" \
    'Dir::Etc::sourceparts "/dev/null";' \
    'Dir::Etc::preferences "/dev/null";' \
    'Dir::Etc::preferencesparts "/dev/null";' \
    'Dir::Log "/dev/null";' \
    'Acquire::Languages "none";' \
    'Acquire::Retries "3";' \
    'Acquire::AllowInsecureRepositories "false";' \
    'APT::Get::AllowUnauthenticated "false";' \
    'APT::Install-Recommends "false";' \
    'APT::Sandbox::User "root";' \
    'APT::Update::Error-Mode "any";' \
    '#clear APT::Default-Release;' \
    '#clear APT::Update::Pre-Invoke;' \
    '#clear APT::Update::Post-Invoke;' \
    '#clear APT::Update::Post-Invoke-Success;' \
    '#clear DPkg::Pre-Install-Pkgs;' >"$state/apt.conf"
}

download_packages() {
  local state=$1 suite=$2 archive keyring
  shift 2
  keyring=$(debian_keyring)
  write_apt_configuration "$state"
  while read -r archive; do
    printf 'deb [signed-by=%s] %s %s main\n' "$keyring" "$archive" "$suite" >"$state/sources.list"
    if apt-get -c "$state/apt.conf" -q update &&
      apt-get -c "$state/apt.conf" -q --yes --download-only install "$@"; then
      return 0
    fi
  done < <(debian_archives)
  echo "no Debian archive served $* from $suite:" \
    "this machine's apt sources name '$(debian_archives | tr '\n' ' ')';" \
    "set GLM_DEBIAN_ARCHIVE to the address of one that does" >&2
  return 1
}

link_within() {
  local tree=$1 link target
  while IFS= read -r -d '' link; do
    target=$(readlink "$link")
    if [[ -e $tree$target || -L $tree$target ]]; then
      ln -sfnr "$tree$target" "$link"
    fi
  done < <(find "$tree" -type l -lname '/*' -print0)
}

loader_of() {
  find "$1" -name 'ld-linux-*.so.*' -type f -print -quit
}

library_path() {
  printf '%s' "$1/lib/$(uname -m)-linux-gnu:$1/usr/lib/$(uname -m)-linux-gnu"
}

is_elf() {
  local magic
  LC_ALL=C IFS= read -r -N 4 magic <"$1" 2>/dev/null && [[ $magic == $'\x7fELF' ]]
}

search_within() {
  local final=$1 entry
  local -a entries
  IFS=: read -r -a entries <<<"$2"
  for entry in ${entries[@]+"${entries[@]}"}; do
    printf ':%s' "$([[ $entry != /* ]] || printf '%s' "$final")$entry"
  done
}

bind_programs() {
  local tree=$1 final=$2 loader libraries file search
  loader=$(loader_of "$tree")
  libraries=$(library_path "$final")
  patch() { "$loader" --library-path "$(library_path "$tree")" "$tree/usr/bin/patchelf" "$@"; }
  while IFS= read -r -d '' file; do
    is_elf "$file" || continue
    search=$(patch --print-rpath "$file" 2>/dev/null) || continue
    if [[ $file != *.so* ]] && patch --print-interpreter "$file" >/dev/null 2>&1; then
      patch --set-interpreter "$final${loader#"$tree"}" "$file"
    elif [[ -z $search ]]; then
      continue
    fi
    patch --force-rpath --set-rpath "$libraries$(search_within "$final" "$search")" "$file"
  done < <(find "$tree/usr" -type f \( -perm -u+x -o -name '*.so*' \) ! -name patchelf -print0)
}

bind_to_libraries() {
  local tree=$1 program=$2 loader libraries
  loader=$(loader_of "$tree")
  libraries=$(library_path "$tree")
  "$loader" --library-path "$libraries" "$tree/usr/bin/patchelf" \
    --set-interpreter "$loader" --force-rpath --set-rpath "$libraries" "$program"
}

record_packages() {
  local state=$1 archive
  for archive in "$state"/archives/*.deb; do
    printf '%s\t%s\n' "$(dpkg-deb --showformat '${Package}\t${Version}' --show "$archive")" \
      "$(sha256sum <"$archive" | cut -d ' ' -f 1)"
  done
}

unpack_packages() {
  local set=$1 tree=$2 final=$3 state=$4 suite wanted archive
  suite=$(awk -F '\t' -v set="$set" '$1 == set { print $2; exit }' "$here/packages.tsv")
  mapfile -t wanted < <(awk -F '\t' -v set="$set" '$1 == set { print $3 "=" $4 }' "$here/packages.tsv")
  download_packages "$state" "$suite" "${wanted[@]}"
  mkdir -p "$tree"
  for archive in "$state"/archives/*.deb; do
    dpkg-deb --extract "$archive" "$tree"
  done
  chmod -R u+rwX,go+rX "$tree"
  link_within "$tree"
  record_packages "$state" >"$tree/packages.tsv"
  if [[ -x $tree/usr/bin/patchelf ]]; then
    bind_programs "$tree" "$final"
  fi
  mkdir -p "$tree/bin"
  "launch_$set" "$tree" "$final"
}
