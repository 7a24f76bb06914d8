write_program() {
  cat >"$1"
  chmod 755 "$1"
}

launch_futhark() {
  local tree=$1 final=$2 loader
  loader=$(loader_of "$tree")
  write_program "$tree/bin/futhark" <<END
#!/bin/sh
exec "$final${loader#"$tree"}" --library-path "$(library_path "$final")" "$final/usr/bin/futhark" "\$@"
END
}

launch_pip() {
  pip_wheel "$1" >/dev/null
}

launch_machine() {
  local tree=$1 final=$2 tool
  for tool in gcc g++; do
    write_program "$tree/bin/$tool" <<END
#!/bin/sh
exec "$final/usr/bin/$tool-12" "--sysroot=$final" "-B$final/usr/bin/" "\$@"
END
  done
  ln -s gcc "$tree/bin/cc"
  ln -s g++ "$tree/bin/c++"
  for tool in ar as ld nm objcopy objdump ranlib readelf strip; do
    ln -s "../usr/bin/$tool" "$tree/bin/$tool"
  done
}

launch_fuzz() {
  local tree=$1 final=$2 tool surroundings=
  [[ -z $machine ]] || surroundings="\"--sysroot=$machine\" \"--gcc-toolchain=$machine/usr\""
  for tool in clang clang++; do
    write_program "$tree/bin/$tool" <<END
#!/bin/sh
exec "$final/usr/lib/llvm-19/bin/$tool" $surroundings "\$@"
END
  done
  ln -s ../usr/lib/llvm-19/bin/llvm-symbolizer "$tree/bin/llvm-symbolizer"
}

launch_nix() {
  ln -s ../usr/bin/nix ../usr/bin/nix-instantiate "$1/bin"
}

launch_chromium() {
  local tree=$1 final=$2
  mkdir -p "$tree/etc/fonts"
  cat >"$tree/etc/fonts/browser.conf" <<END
<?xml version="1.0"?>
<fontconfig>
  <dir>$final/usr/share/fonts</dir>
  <cachedir>$final/var/cache/fontconfig</cachedir>
  <alias><family>sans-serif</family><prefer><family>Inter</family></prefer></alias>
  <alias><family>system-ui</family><prefer><family>Inter</family></prefer></alias>
  <alias><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
</fontconfig>
END
  write_program "$tree/bin/chromium" <<END
#!/bin/sh
export FONTCONFIG_FILE="$final/etc/fonts/browser.conf"
exec "$final/usr/lib/chromium/chromium-headless-shell" "\$@"
END
}

launch_glm() {
  write_program "$1/bin/glm" <<END
#!/bin/sh
exec "$2/bin/python" -m glm_engine "\$@"
END
}
