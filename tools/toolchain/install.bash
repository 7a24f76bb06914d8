#!/usr/bin/env bash
set -euo pipefail

root=$1
key=$2
environment=$3
read -r -a groups <<<"$4"
here=$root/tools/toolchain
home=$root/.toolchain
source "$here/debian.bash"
source "$here/python.bash"
source "$here/launchers.bash"
source "$here/unused.bash"

say() {
  printf 'develop: %s\n' "$1" >&2
}

fail() {
  printf 'tools/develop: %s\n' "$*" >&2
  exit 1
}

digest() {
  sha256sum | cut -c 1-12
}

stage() {
  local title=$1 begin=$SECONDS status
  shift
  set +e
  (
    set -e
    "$@"
  ) >"$work/log" 2>&1
  status=$?
  set -e
  if ((status)); then
    tail -n 25 "$work/log" >&2
    require_space 20 "after it failed"
    fail "$title failed with status $status; its last lines are above"
  fi
  say "$title: $((SECONDS - begin)) s"
}

require_space() {
  local available
  available=$(df -Pm "$home" | awk 'NR == 2 { print $4 }')
  if ((available < $1)); then
    fail "the file system of $home has $available MB free, but $1 MB are needed${2:+ ($2)}"
  fi
}

space_for() {
  awk -F '\t' -v folder="$1" '$1 == folder { print $2 }' "$here/space.tsv"
}

adopt() {
  mv -T "$work/tree" "$1"
  rm -rf "$work/apt"
}

bring_packages() {
  local set=$1 title=$2 final=$3
  [[ -d $final ]] && return
  require_space "$(space_for "$set")"
  stage "$title" unpack_packages "$set" "$work/tree" "$final" "$work/apt"
  adopt "$final"
}

packages_folder() {
  local set=$1
  printf '%s' "$home/$set-$({
    printf '%s %s' "$root" "$machine"
    grep "^$set" "$here/packages.tsv"
    cat "$here/debian.bash" "$here/launchers.bash"
  } | digest)"
}

bring_compiler_and_python() {
  python=$(machine_python) || python=
  cc=$(type -P gcc) && cxx=$(type -P g++) && compiler_works "$cc" "$cxx" || cc=
  if [[ -n $python && -n $cc ]]; then
    return
  fi
  if ! debian_reachable; then
    fail "expected gcc, g++ and Python 3.11 or 3.12 on PATH, found gcc: ${cc:-none that works}," \
      "Python: ${python:-none that fits}; $(debian_obstacle)$(
        installing ${cc:-gcc g++} ${python:-"$(python_package)" python3-pip-whl}
      )"
  fi
  machine=$(packages_folder machine)
  bring_packages machine "gcc 12 and Python 3.11 from Debian" "$machine"
  cc=$machine/bin/gcc
  cxx=$machine/bin/g++
  [[ -n $python ]] || python=$machine/usr/bin/python3.11
}

compiler_works() {
  printf 'int main() { return __cplusplus < 201703L; }\n' >"$work/probe.cpp"
  printf 'int main(void) { return 0; }\n' >"$work/probe.c"
  "$1" -o "$work/probe" "$work/probe.c" >/dev/null 2>&1 &&
    "$2" -std=c++17 -o "$work/probe" "$work/probe.cpp" >/dev/null 2>&1 && "$work/probe"
}

bring_pip() {
  local wheel
  wheel=$(bundled_pip "$python") || wheel=
  if [[ -r $wheel ]]; then
    pip=$wheel
    return
  fi
  if ! debian_reachable; then
    fail "expected $python to include pip's wheel (ensurepip), found none; $(debian_obstacle)$(installing python3-pip-whl)"
  fi
  wheels=$(packages_folder pip)
  bring_packages pip "pip from Debian" "$wheels"
  pip=$(pip_wheel "$wheels")
}

bring_futhark() {
  local found
  if debian_reachable; then
    futhark=$(packages_folder futhark)
    bring_packages futhark "Futhark 0.25.27 from Debian" "$futhark"
    return
  fi
  found=$(futhark_version)
  if [[ ! $found =~ ^0\.25\.([0-9]+)$ ]] || ((BASH_REMATCH[1] < 27)); then
    fail "expected futhark 0.25.27 or a later 0.25 on PATH, found '${found:-none}'; $(debian_obstacle)"
  fi
}

futhark_version() {
  if type -P futhark >/dev/null; then
    futhark --version | sed -n '1s/^Futhark \([0-9.]*[0-9]\).*/\1/p'
  fi
}

bring_base() {
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  venv=$home/python-$({
    printf '%s %s' "$root" "$python"
    cat "$here/locks/base-$version.lock" "$here/python.bash" "$here/launchers.bash"
  } | digest)
  if [[ ! -d $venv ]]; then
    require_space "$(space_for base)"
    stage "Python $version packages" make_environment "$python" "$pip" \
      "$here/locks/base-$version.lock" "$work/tree" "$venv"
    adopt "$venv"
  fi
  pip=$(packages_of "$venv")
}

bring_overlay() {
  local group=$1
  overlay=$home/$group-$({
    printf '%s' "$venv"
    [[ $group != browser ]] || printf '%s' "$chromium"
    cat "$here/python.bash" "$here/locks"/*-"$version.lock"
  } | digest)
  overlays+=("$overlay")
  [[ $group != cuda ]] || cuda=$overlay
  [[ -d $overlay ]] && return
  require_space "$(space_for "$group")"
  case $group in
    oracle)
      stage "oracle packages" make_oracle_overlay "$venv/bin/python" "$pip" "$work/tree" "$version" "$here/locks"
      ;;
    cuda)
      stage "CUDA packages" make_cuda_overlay "$venv/bin/python" "$pip" "$work/tree" "$version" "$here/locks"
      ;;
    docs | modal | services)
      stage "$group packages" make_overlay "$venv/bin/python" "$pip" "$work/tree" "$here/locks/$group-$version.lock"
      ;;
    browser)
      stage "Playwright" make_browser_overlay "$venv/bin/python" "$pip" "$work/tree" \
        "$here/locks/browser-$version.lock" "$chromium"
      ;;
  esac
  adopt "$overlay"
}

bring_fuzz() {
  clang=$(packages_folder fuzz)
  bring_packages fuzz "clang 19 from Debian" "$clang"
}

bring_nix() {
  nix=$(packages_folder nix)
  bring_packages nix "Nix 2.26 from Debian" "$nix"
}

bring_browser() {
  if debian_reachable; then
    chromium=$(packages_folder chromium)
    bring_packages chromium "headless Chromium from Debian" "$chromium"
  elif ! type -P chromium-headless-shell chromium google-chrome >/dev/null; then
    fail "expected chromium on PATH, found none; $(debian_obstacle)"
  fi
  bring_overlay browser
}

write_environment() {
  local folder search=$venv/bin modules=$root/python
  for folder in "$nix" "$clang" "$machine" "$futhark"; do
    [[ -z $folder ]] || search=$folder/bin:$search
  done
  [[ -z $cuda ]] || search=$cuda/nvidia/cu13/bin:$search
  for folder in ${overlays[@]+"${overlays[@]}"}; do
    search+=:$folder/bin
    modules+=:$folder
  done
  {
    printf 'export GLM_ROOT=%q\n' "$root"
    printf 'export GLM_PYTHON=%q\n' "$venv/bin/python"
    printf 'export GLM_GROUPS=%q\n' "${groups[*]-}"
    printf 'export VIRTUAL_ENV=%q\n' "$venv"
    printf 'export CC=%q CXX=%q\n' "$cc" "$cxx"
    printf 'export PATH=%q:$PATH\n' "$search"
    printf 'export PYTHONPATH=%q\n' "$modules"
    printf 'export PYTHONNOUSERSITE=1\n'
    printf 'unset PYTHONHOME\n'
    [[ -z $clang ]] || printf 'export CLANG=%q\n' "$clang/bin/clang"
    [[ -z $chromium ]] || printf 'export GLM_CHROMIUM=%q\n' "$chromium/bin/chromium"
    [[ -z $cuda ]] || printf 'export CUDA_HOME=%q\n' "$cuda/nvidia/cu13"
  } >"$work/environment"
  mv -T "$work/environment" "$environment"
}

check_machine() {
  local tool
  for tool in flock sha256sum awk sed find; do
    type -P "$tool" >/dev/null || fail "expected $tool on PATH, found none"
  done
  [[ $(uname -sm) == "Linux x86_64" ]] || fail "expected Linux on x86_64, got $(uname -sm)"
}

prepare_home() {
  mkdir -p "$home" || fail "cannot create $home"
  exec 9>"$home/lock" || fail "cannot write $home/lock"
  if ! flock --nonblock 9; then
    say "another run is installing the toolchain; waiting for it to finish"
    flock 9
  fi
  rm -rf "$home"/partial.*
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  trap 'rm -rf "$work"' EXIT
  work=$(mktemp -d "$home/partial.XXXXXX")
}

install() {
  local group
  bring_compiler_and_python
  bring_pip
  for group in ${groups[@]+"${groups[@]}"}; do
    case $group in
      futhark | fuzz | nix) "bring_$group" ;;
    esac
  done
  bring_base
  for group in ${groups[@]+"${groups[@]}"}; do
    case $group in
      browser) bring_browser ;;
      cuda | docs | modal | oracle | services) bring_overlay "$group" ;;
    esac
  done
  write_environment
  remove_unused
}

check_machine
work=
machine=
wheels=
futhark=
nix=
clang=
chromium=
cuda=
overlays=()
prepare_home
if [[ -r $environment ]] && (source "$environment" && [[ -x $GLM_PYTHON && -x $CC && -x $CXX ]]); then
  exit 0
fi
install 9>&-
say "the toolchain is ready after $SECONDS s, in .toolchain"
