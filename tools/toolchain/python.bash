python_fits() {
  [[ -x $1 ]] && "$1" - <<'END' >/dev/null 2>&1
import ctypes
import sys
import venv

fits = (3, 11) <= sys.version_info[:2] <= (3, 12) and sys.maxsize > 2**32
sys.exit(0 if fits and ctypes.sizeof(ctypes.c_void_p) == 8 else 1)
END
}

machine_python() {
  local name path
  for name in python3.11 python3.12 python3; do
    path=$(type -P "$name") || continue
    if python_fits "$path"; then
      "$path" -c 'import os, sys; print(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))'
      return 0
    fi
  done
  return 1
}

python_package() {
  local name
  for name in python3.12 python3.11; do
    if type -P apt-cache >/dev/null && apt-cache show "$name" >/dev/null 2>&1; then
      break
    fi
  done
  printf '%s' "$name"
}

bundled_pip() {
  "$1" - <<'END'
import importlib.util
import pathlib

folders = [pathlib.Path("/usr/share/python-wheels")]
found = importlib.util.find_spec("ensurepip")
if found is not None and found.origin is not None:
    folders.insert(0, pathlib.Path(found.origin).parent / "_bundled")
print(*sorted(str(wheel) for folder in folders for wheel in folder.glob("pip-*.whl"))[:1])
END
}

pip_wheel() {
  local wheels=("$1"/usr/share/python-wheels/pip-*.whl)
  [[ -r ${wheels[0]} ]] || {
    echo "no pip wheel in $1/usr/share/python-wheels" >&2
    return 1
  }
  printf '%s' "${wheels[0]}"
}

certificates() {
  local present=/etc/ssl/certs/ca-certificates.crt
  if [[ -z ${SSL_CERT_FILE:-} && -r $present ]]; then
    export SSL_CERT_FILE=$present
  elif [[ -z ${SSL_CERT_FILE:-} && -n $wheels ]]; then
    cat "$wheels"/usr/share/ca-certificates/*/*.crt >"$work/certificates.pem"
    export SSL_CERT_FILE=$work/certificates.pem
  fi
}

run_pip() {
  local python=$1 wheel=$2
  shift 2
  (
    unset PIP_USER PIP_TARGET PIP_PREFIX PIP_ROOT PIP_REQUIRE_VIRTUALENV PYTHONPATH PYTHONHOME
    certificates
    exec "$python" "$wheel/pip" --disable-pip-version-check --no-input "$@"
  )
}

pip_install() {
  local python=$1 wheel=$2
  shift 2
  run_pip "$python" "$wheel" install --no-deps --no-compile --only-binary :all: --progress-bar off "$@"
}

move_scripts() {
  local from=$1 to=$2 script content
  for script in "$from"/bin/* "$from/pyvenv.cfg"; do
    if [[ -f $script && ! -L $script ]] && grep -qIF "$from" "$script"; then
      content=$(<"$script")
      printf '%s\n' "${content//"$from"/"$to"}" >"$script"
    fi
  done
}

lock_of_pip() {
  awk '/^[a-z0-9]/ { wanted = /^pip==/ } wanted' "$1"
}

packages_of() {
  printf '%s' "$1"/lib/python3.*/site-packages
}

make_environment() {
  local base=$1 wheel=$2 lock=$3 folder=$4 final=$5 locked
  "$base" -m venv --without-pip --symlinks "$folder"
  lock_of_pip "$lock" >"$work/pip.lock"
  pip_install "$folder/bin/python" "$wheel" --require-hashes --requirement "$work/pip.lock"
  locked=$(packages_of "$folder")
  pip_install "$folder/bin/python" "$locked" --require-hashes --requirement "$lock"
  run_pip "$folder/bin/python" "$locked" check
  move_scripts "$folder" "$final"
  launch_glm "$folder" "$final"
}

make_overlay() {
  local python=$1 wheel=$2 folder=$3 lock
  shift 3
  for lock in "$@"; do
    pip_install "$python" "$wheel" --target "$folder" --upgrade --require-hashes --requirement "$lock"
  done
}

make_oracle_overlay() {
  local python=$1 wheel=$2 folder=$3 version=$4 locks=$5
  make_overlay "$python" "$wheel" "$folder" "$locks/oracle-$version.lock"
  if [[ -r $locks/torch-$version.lock ]]; then
    make_overlay "$python" "$wheel" "$folder" "$locks/torch-$version.lock"
  else
    pip_install "$python" "$wheel" --target "$folder" --upgrade "torch==$(torch_version "$locks")"
  fi || {
    echo "the oracle needs the CPU build of PyTorch: set PIP_FIND_LINKS or PIP_EXTRA_INDEX_URL to a place that has it" >&2
    return 1
  }
  PYTHONPATH=$folder "$python" -c 'import torch, compressed_tensors, transformers'
}

make_browser_overlay() {
  local python=$1 wheel=$2 folder=$3 lock=$4 libraries=$5
  make_overlay "$python" "$wheel" "$folder" "$lock"
  if [[ -n $libraries ]]; then
    bind_to_libraries "$libraries" "$folder/playwright/driver/node"
  fi
  "$folder/playwright/driver/node" --version
}

make_cuda_overlay() {
  local python=$1 wheel=$2 folder=$3 version=$4 locks=$5 library
  make_overlay "$python" "$wheel" "$folder" "$locks/cuda-$version.lock" "$locks/cutlass-$version.lock"
  for library in "$folder"/nvidia/*/lib/lib*.so.*; do
    ln -s "${library##*/}" "${library%.so.*}.so"
  done
  ln -s lib "$folder/nvidia/cu13/lib64"
  "$folder/nvidia/cu13/bin/nvcc" --version
}

torch_version() {
  sed -n 's/^torch==\([0-9.]*\).*/\1/p' "$1"/torch-*.lock | head -n 1
}
