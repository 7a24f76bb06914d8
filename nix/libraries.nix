{ pkgs }:
[
  pkgs.stdenv.cc.cc.lib
  pkgs.zlib
]
