{ pkgs }:
let
  libraries = import ./nix/libraries.nix { inherit pkgs; };
in
{
  deps = libraries ++ [
    pkgs.gcc
    pkgs.git
    pkgs.python311
    pkgs.util-linux
  ];
  env.LD_LIBRARY_PATH = pkgs.lib.makeLibraryPath libraries;
}
