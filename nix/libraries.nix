{ pkgs }:
[
  pkgs.expat
  pkgs.glib
  pkgs.stdenv.cc.cc.lib
  pkgs.xorg.libX11
  pkgs.xorg.libXext
  pkgs.xorg.libXrender
  pkgs.zlib
]
