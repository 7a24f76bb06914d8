{ pkgs }:
{
  deps = [
    pkgs.gcc
    pkgs.git
    pkgs.python311
    pkgs.util-linux
  ];
  env.LD_LIBRARY_PATH = pkgs.lib.makeLibraryPath (import ./nix/libraries.nix { inherit pkgs; });
}
