{ pkgs }:
{
  deps = [
    pkgs.futhark
    pkgs.gcc
    pkgs.git
    pkgs.python311
    pkgs.util-linux
  ];
}
