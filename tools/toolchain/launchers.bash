write_program() {
  cat >"$work/tree/$1"
  chmod 755 "$work/tree/$1"
}

write_launchers() {
  local loader tool
  mkdir -p "$work/tree"
  loader=$(loader_of "$futhark")
  write_program futhark <<END
#!/bin/sh
exec $loader --library-path $(library_path "$futhark" "$(uname -m)-linux-gnu") $futhark/usr/bin/futhark "\$@"
END
  write_program glm <<END
#!$venv/bin/python
from glm_engine.cli import main

main()
END
  if [[ -n $machine ]]; then
    for tool in gcc g++; do
      write_program "$tool" <<END
#!/bin/sh
exec $machine/usr/bin/$tool-12 --sysroot=$machine -B$machine/usr/bin/ "\$@"
END
    done
    ln -s gcc "$work/tree/cc"
    ln -s g++ "$work/tree/c++"
    for tool in ar as ld nm objcopy objdump ranlib readelf strip; do
      ln -s "$machine/usr/bin/$tool" "$work/tree/$tool"
    done
  fi
  if [[ -n $clang ]]; then
    for tool in clang clang++; do
      write_program "$tool" <<END
#!/bin/sh
exec $clang/usr/lib/llvm-19/bin/$tool ${machine:+--sysroot=$machine --gcc-toolchain=$machine/usr} "\$@"
END
    done
    ln -s "$clang/usr/lib/llvm-19/bin/llvm-symbolizer" "$work/tree/llvm-symbolizer"
  fi
  rm -rf "$bin"
  adopt "$bin"
}

write_environment() {
  local overlay search=$bin:$venv/bin modules=$root/python
  for overlay in ${overlays[@]+"${overlays[@]}"}; do
    [[ -d $overlay/bin ]] && search+=:$overlay/bin
    modules+=:$overlay
  done
  {
    printf 'toolchain_folders=%q\n' "$futhark $machine $clang $venv $bin ${overlays[*]-}"
    printf 'export GLM_ROOT=%q\n' "$root"
    printf 'export GLM_PYTHON=%q\n' "$venv/bin/python"
    printf 'export GLM_GROUPS=%q\n' "${groups[*]-}"
    printf 'export VIRTUAL_ENV=%q\n' "$venv"
    printf 'export CC=%q CXX=%q\n' "$cc" "$cxx"
    printf 'export PATH=%q:$PATH\n' "$search"
    printf 'export PYTHONPATH=%q\n' "$modules"
    printf 'export PYTHONNOUSERSITE=1\n'
    printf 'unset PYTHONHOME\n'
    [[ -z $clang ]] || printf 'export CLANG=%q\n' "$bin/clang"
    [[ -z $cuda ]] || printf 'export CUDA_HOME=%q\n' "$cuda/nvidia/cu13"
  } >"$work/environment"
  mv -T "$work/environment" "$environment"
}
